// Requests to the server: one typed client for each connection, and one kind of error.
import createClient from "openapi-fetch";

import { placeOfTime, type Time } from "../time";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** Whose knowledge base the console shows, and the key it uses. `scope` is null for the base partition. */
export interface Connection {
  tenant: string;
  database: string;
  scope: string | null;
  key: string | null;
  /** What the requests may see, as a JSON object of levels and groups; null for all that the key may see. */
  view: string | null;
  /** The time that is shown; null for now. */
  time: Time | null;
}

/** A mistake in a text, with the position of the server's message. Lines and columns count from 1. */
export interface TextError {
  line: number;
  column: number;
  endLine?: number;
  endColumn?: number;
  message: string;
  hint?: string | null;
  code?: string;
  /** The line with the mistake. */
  source?: string;
}

/** An answer of the server that is not a success, or no answer at all (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
  ) {
    super(message);
  }

  /** The mistakes in the text of the request, if the error is about a text. */
  get textErrors(): TextError[] {
    const errors = this.details["errors"];
    return Array.isArray(errors) ? (errors as TextError[]).filter((error) => typeof error.line === "number") : [];
  }
}

/** The address of the server: the folder above that of the page. */
export const SERVER = new URL("../", document.baseURI).href.replace(/\/$/, "");

/** Requests about the node, and the names of scopes, are the same through every view. */
const WITHOUT_VIEW = /^\/(auth|admin|health|metrics|replication|scopes)\b/;

/** Return the headers of a request of this connection. */
export function headersOf(connection: Connection, path: string): Record<string, string> {
  const headers: Record<string, string> = { "X-Tenant-ID": connection.tenant };
  if (connection.database !== "default") headers["X-Database"] = connection.database;
  if (connection.key !== null) headers["Authorization"] = `Bearer ${connection.key}`;
  if (connection.view !== null && !WITHOUT_VIEW.test(path)) headers["X-View"] = connection.view.replace(/[^\x20-\x7e]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return headers;
}

/** Create a client that sends the requests of a connection. */
export function clientOf(connection: Connection) {
  const client = createClient<paths>({ baseUrl: SERVER });
  client.use({
    async onRequest({ request, schemaPath }) {
      for (const [name, value] of Object.entries(headersOf(connection, schemaPath))) request.headers.set(name, value);
      const { time } = connection;
      const place = time === null ? null : placeOfTime(request.method, schemaPath, time);
      if (time === null || place === null) return request;
      const address = new URL(request.url);
      if (place === "query") address.searchParams.set(time.kind, time.at);
      const { method, headers, signal } = request;
      const body = place === "body" ? { body: JSON.stringify({ ...(await request.json() as object), [time.kind]: time.at }) } : {};
      return new Request(address, { method, headers, signal, ...body });
    },
  });
  return client;
}

export type Client = ReturnType<typeof clientOf>;

interface Outcome<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return the data of a request, or throw an `ApiError`. */
export async function dataOf<T>(outcome: Promise<Outcome<T>>): Promise<NonNullable<T>> {
  return (await outcomeOf(outcome)).data;
}

/** Return the data and the response of a request, or throw an `ApiError`. */
export async function outcomeOf<T>(outcome: Promise<Outcome<T>>): Promise<{ data: NonNullable<T>; response: Response }> {
  let settled: Outcome<T>;
  try {
    settled = await outcome;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "The server does not respond.");
  }
  const { data, error, response } = settled;
  if (!response.ok) throw errorOf(response.status, error);
  return { data: data as NonNullable<T>, response };
}

/** Send a request that the typed client does not describe: another media type, or a download. */
export async function send(
  connection: Connection,
  path: string,
  options: { method?: string; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal } = {},
): Promise<Response> {
  const { method = options.body === undefined ? "GET" : "POST", body, headers = {}, signal } = options;
  let response: Response;
  try {
    response = await fetch(`${SERVER}${path}`, {
      method,
      headers: { ...headersOf(connection, path), ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(timed(connection, path, body)) }),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "The server does not respond.");
  }
  if (!response.ok) {
    const text = await response.text();
    let parsed: unknown = text;
    try {
      parsed = JSON.parse(text);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
    throw errorOf(response.status, parsed);
  }
  return response;
}

/** Return the body of a request with the time of the connection, where the path takes one. */
function timed({ time }: Connection, path: string, body: unknown): unknown {
  if (time === null || placeOfTime("POST", path, time) !== "body") return body;
  return { ...(body as object), [time.kind]: time.at };
}

/** Return the error that a response with this status and body stands for. */
export function errorOf(status: number, body: unknown): ApiError {
  if (typeof body === "object" && body !== null && "message" in body) {
    const { code = "ERROR", message, details = {} } = body as { code?: string; message: string; details?: Record<string, unknown> };
    if (details["header"] === "X-View") return new ApiError(status, code, "This cannot be shown through a view. Choose “Show everything” above.", details);
    return new ApiError(status, code, message, details);
  }
  return new ApiError(status, "ERROR", `The server answered with status ${status}.`);
}

import { errorOf, KBError } from "./errors.js";
import { HISTORIC, READS } from "./operations.js";

/** Repeated requests: after connection errors, and after answers with status 429 and 503. Times in milliseconds. */
export interface Retries {
  /** Number of repetitions. */
  attempts: number;
  /** The delay before the first repetition is random, up to this; it doubles for each further one. */
  firstDelay: number;
  maxDelay: number;
  /** An answer whose `Retry-After` asks for more is not waited for. */
  maxRetryAfter: number;
  /** Times in a row that a stream of events which was open before is opened again without success; without end by default. */
  events: number;
}

/** Options of a connection. */
export interface Options {
  tenant?: string;
  database?: string;
  apiKey?: string;
  /** Address of a follower that answers reads outside of transactions. */
  readUrl?: string;
  /** Limit of a request in milliseconds; a request with `timeoutMs` has at least that and 5 s. */
  timeout?: number;
  /** Longest silence of an event stream in milliseconds; a server sends a comment every 15 s. */
  eventTimeout?: number;
  retries?: Partial<Retries>;
  /** Every write has a key, so that a server carries it out once even if it is sent again. */
  idempotency?: boolean;
  /** Reads wait on a follower until it has the writes of this connection. */
  readYourWrites?: boolean;
  /** The `fetch` to use, in place of the global one. */
  fetch?: typeof globalThis.fetch;
}

const DEFAULT_RETRIES: Retries = { attempts: 4, firstDelay: 100, maxDelay: 5_000, maxRetryAfter: 30_000, events: Infinity };
const EXTRA_MS = 5_000;
const MAX_REDIRECTS = 3;

/** A request about what was known at an instant; throws KBError if the operation uses the present state. */
export async function knownAt(request: Request, base: string, instant: number | string): Promise<Request> {
  const url = new URL(request.url);
  const path = request.url.slice(base.length).replace(/[?].*$/, "").replace(/^\/episodes\/[^/]+$/, "/episodes/{id}");
  if (HISTORIC[request.method]?.has(path) !== true) {
    throw new KBError("VALIDATION_ERROR", "knownAt is not available here: this operation uses the present state");
  }
  if (request.method === "GET") {
    url.searchParams.set("knownAt", String(instant));
    return new Request(url, request);
  }
  const body = JSON.stringify({ ...((await request.json()) as object), knownAt: instant });
  const { headers, method, signal } = request;
  return new Request(url, { method, headers, body, signal });
}

/** Levels and groups by dimension, such as `{ trust: "user", team: ["eng"] }`. */
export type Labels = Record<string, string | string[]>;

/** The view that is read, and the labels of what is stored. */
export interface Seen {
  view?: Labels;
  labels?: Labels;
}

/** Where requests go: the parts of a connection that its transactions share. */
export class Transport {
  readonly url: string;
  readonly #options: Options;
  readonly #retries: Retries;
  readonly #fetch: typeof globalThis.fetch;
  readonly #positions = new Map<string, number>();

  constructor(url: string, options: Options) {
    this.url = serverUrl("url", url);
    this.#options = options.readUrl ? { ...options, readUrl: serverUrl("readUrl", options.readUrl) } : options;
    this.#retries = { ...DEFAULT_RETRIES, ...options.retries };
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  get eventTimeout(): number {
    return this.#options.eventTimeout ?? 45_000;
  }

  /** The headers that address a tenant and a transaction. */
  headers(tenant: string, database: string, transaction: string | undefined, seen: Seen = {}): Record<string, string> {
    return {
      ...(seen.view === undefined ? {} : { "X-View": JSON.stringify(seen.view) }),
      ...(seen.labels === undefined ? {} : { "X-Labels": JSON.stringify(seen.labels) }),
      "X-Tenant-ID": tenant,
      "X-Database": database,
      ...(this.#options.apiKey === undefined ? {} : { Authorization: `Bearer ${this.#options.apiKey}` }),
      ...(transaction === undefined ? {} : { "X-Transaction-ID": transaction }),
    };
  }

  /** Send a request, again if that may help, and return the answer; throws KBError unless it succeeds. */
  async send(request: Request): Promise<Response> {
    const path = request.url.slice(this.url.length).replace(/[?].*$/, "");
    const isWrite = !(request.method === "GET" || READS.has(path));
    const tenant = `${request.headers.get("X-Database")}/${request.headers.get("X-Tenant-ID")}`;
    const headers = new Headers(request.headers);
    const url = this.#addressed(request, headers, isWrite, tenant);
    const body = request.method === "GET" ? null : (await request.text()) || null;
    const init = { method: request.method, headers, body };
    const mayRepeat = !isWrite || headers.has("Idempotency-Key");
    for (let attempt = 0; ; attempt++) {
      let error: KBError;
      let retryAfter: number | undefined;
      let isRetried: boolean;
      try {
        const response = await this.#exchange(url, { ...init, signal: this.#signal(request, body) });
        if (response.ok) {
          const seq = Number(response.headers.get("X-Commit-Seq") ?? 0);
          this.#positions.set(tenant, Math.max(seq, this.#positions.get(tenant) ?? 0));
          return response;
        }
        error = errorOf(response, await response.json().catch(() => undefined));
        retryAfter = milliseconds(response.headers.get("Retry-After"));
        const isUnknown = error.code === "NOT_READY" && error.details?.["outcome"] !== undefined;
        const inFlight = response.status === 409 && attempt > 0 && error.details?.["reason"] === "in_flight";
        isRetried = inFlight || ([429, 503].includes(response.status) && (mayRepeat || !isUnknown));
      } catch (failure) {
        if (request.signal.aborted) throw failure;
        error = this.#failure(failure);
        isRetried = error.code !== "TIMED_OUT" && (mayRepeat || isUnsent(failure));
      }
      const delay = isRetried ? this.delay(attempt, retryAfter) : undefined;
      if (delay === undefined) throw error;
      await pause(delay, request.signal);
    }
  }

  /** The milliseconds to wait after a failed attempt (from 0); undefined to give up. */
  delay(attempt: number, retryAfter?: number): number | undefined {
    const { attempts, maxRetryAfter } = this.#retries;
    if (attempt >= attempts || (retryAfter ?? 0) > maxRetryAfter) return undefined;
    return (retryAfter ?? 0) + this.#jitter(attempt);
  }

  /**
   * The milliseconds to wait before a stream of events is opened again after failures in a row (from 0); undefined to give up.
   * Until it was open once, `attempts` is the limit, so that a wrong address is reported.
   */
  streamDelay(failures: number, wasOpen: boolean): number | undefined {
    const { attempts, events } = this.#retries;
    return failures >= (wasOpen ? events : attempts) ? undefined : this.#jitter(failures);
  }

  #jitter(attempt: number): number {
    return Math.random() * Math.min(this.#retries.maxDelay, this.#retries.firstDelay * 2 ** attempt);
  }

  /** Open a stream of events once; the signal ends it. */
  async stream(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
    const base = this.#options.readUrl ?? this.url;
    try {
      const response = await this.#fetch(`${base}${path}`, { headers, signal });
      if (response.ok) return response;
      throw errorOf(response, await response.json().catch(() => undefined));
    } catch (failure) {
      throw failure instanceof KBError ? failure : this.#failure(failure);
    }
  }

  /** The address for a request; adds the headers that depend on what it does. */
  #addressed(request: Request, headers: Headers, isWrite: boolean, tenant: string): string {
    const { readUrl, idempotency = true, readYourWrites = true } = this.#options;
    const isRead = !isWrite && !headers.has("X-Transaction-ID");
    const seq = this.#positions.get(tenant);
    if (isRead && readYourWrites && seq) headers.set("X-Min-Seq", String(seq));
    if (isWrite && idempotency && (request.method === "POST" || request.method === "PUT")) {
      headers.set("Idempotency-Key", crypto.randomUUID().replaceAll("-", ""));
    }
    return isRead && readUrl !== undefined ? readUrl + request.url.slice(this.url.length) : request.url;
  }

  /** Send a request once, to the node of a cluster that has the tenant. */
  async #exchange(url: string, init: RequestInit): Promise<Response> {
    for (let redirects = 0; ; redirects++) {
      const response = await this.#fetch(url, { ...init, redirect: "manual" });
      const location = response.headers.get("Location");
      // The key must not leave an encrypted connection.
      const isUnsafe = url.startsWith("https:") && !location?.startsWith("https:");
      if (response.status !== 307 || location === null || isUnsafe || redirects === MAX_REDIRECTS) return response;
      url = location;
    }
  }

  #signal(request: Request, body: string | null): AbortSignal {
    const asked = /"timeoutMs":(\d+)/.exec(body ?? "")?.[1];
    const usual = this.#options.timeout ?? 60_000;
    const limit = asked === undefined ? usual : Math.max(usual, Number(asked) + EXTRA_MS);
    return AbortSignal.any([request.signal, AbortSignal.timeout(limit)]);
  }

  #failure(failure: unknown): KBError {
    const isTimeout = failure instanceof DOMException && failure.name === "TimeoutError";
    const [code, text]: ["TIMED_OUT" | "CONNECTION_FAILED", string] = isTimeout
      ? ["TIMED_OUT", `no answer from ${this.url} within the time limit`]
      : isUnsent(failure)
        ? ["CONNECTION_FAILED", `cannot connect to ${this.url}: is the server running?`]
        : ["CONNECTION_FAILED", `the connection to ${this.url} was lost: ${String(failure)}`];
    return new KBError(code, text, undefined, undefined, undefined, { cause: failure });
  }
}

/** True if a request failed before any of it was sent. */
function isUnsent(failure: unknown): boolean {
  const cause = failure instanceof Error ? (failure.cause as { code?: string } | undefined) : undefined;
  return ["ECONNREFUSED", "ENOTFOUND", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"].includes(cause?.code ?? "");
}

function milliseconds(header: string | null): number | undefined {
  return header !== null && /^\d+$/.test(header) ? Number(header) * 1000 : undefined;
}

/** Wait; throws the reason of the signal if it ends the wait. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal.reason));
    const timer = setTimeout(() => (signal.removeEventListener("abort", stop), resolve()), milliseconds);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}

function serverUrl(field: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !["http:", "https:"].includes(url.protocol) || url.search || url.hash) {
    throw new KBError("VALIDATION_ERROR", `${field}: must be an address such as http://127.0.0.1:9300`);
  }
  if (url.username || url.password) {
    throw new KBError("VALIDATION_ERROR", `${field}: must have no user or password; pass the key as apiKey`);
  }
  return text.replace(/\/+$/, "");
}

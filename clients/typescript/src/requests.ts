import type { Client } from "openapi-fetch";

import type { components, paths } from "./schema.js";

export type Schemas = components["schemas"];
type FieldOf<T> = T extends unknown ? keyof T : never;
type ValueOf<T, Field> = T extends unknown ? (Field extends keyof T ? T[Field] : never) : never;
/** The fields of a body, all optional: the server says which ones are missing. */
export type Body<Name extends keyof Schemas> = { [Field in FieldOf<Schemas[Name]>]?: ValueOf<Schemas[Name], Field> };
/** What a request has apart from its path and body. */
export interface Sent {
  headers?: Record<string, string>;
  params?: object;
  parseAs?: "json" | "text";
}

/** Send a request and return its answer. An error has been thrown by the transport. */
export async function post<T>(client: Client<paths>, path: string, body: object, sent: Sent = {}): Promise<T> {
  const send = client.POST as unknown as (path: string, init: object) => Promise<{ data: T }>;
  return (await send(path, { body, ...sent })).data;
}

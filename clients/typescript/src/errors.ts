/** Codes of errors: those of the server, and those of the connection. */
export const ERROR_CODES = [
  "VALIDATION_ERROR", "UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND", "CONFLICT", "FOLLOWER_READ_ONLY", "LOG_TRUNCATED",
  "PAYLOAD_TOO_LARGE", "BUDGET_EXCEEDED", "RATE_LIMITED", "INTERNAL_ERROR", "LLM_NOT_CONFIGURED", "LLM_FAILED",
  "PLUGIN_FAILED", "NOT_READY", "STORAGE_FULL", "CONNECTION_FAILED", "TIMED_OUT", "NOT_A_SERVER",
] as const;

/** A code of an error. */
export type ErrorCode = (typeof ERROR_CODES)[number];

/** A mistake in a text of the rule language. Lines and columns count from 1, columns in code points. */
export interface TextError {
  line: number;
  column: number;
  endColumn: number;
  code: string;
  message: string;
  hint: string | null;
  source: string;
}

/**
 * Every error that the client throws.
 *
 * `code` names the kind for programs, `message` describes the error for a person. `status` is the HTTP status and
 * `requestId` the id in the log of the server; both are undefined if no server answered.
 */
export class KBError extends Error {
  override readonly name = "KBError";

  constructor(
    readonly code: ErrorCode,
    message: string,
    readonly details: Record<string, unknown> | undefined = undefined,
    readonly status: number | undefined = undefined,
    readonly requestId: string | undefined = undefined,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** The mistakes of a text in the rule language, in its order; empty for other errors. */
  get errors(): TextError[] {
    return (this.details?.["errors"] ?? []) as TextError[];
  }
}

/** True if a value is an error with one of these codes, or with any code if none is given. */
export function isKBError(value: unknown, ...codes: ErrorCode[]): value is KBError {
  return value instanceof KBError && (codes.length === 0 || codes.includes(value.code));
}

/** The error that an answer of a server describes; `body` is its JSON, undefined if it has none. */
export function errorOf(response: Response, body: unknown): KBError {
  const requestId = response.headers.get("X-Request-ID") ?? undefined;
  if (typeof body === "object" && body !== null && "code" in body && "message" in body) {
    const { code, message, details } = body as { code: ErrorCode; message: string; details?: Record<string, unknown> };
    return new KBError(code, message, details ?? undefined, response.status, requestId);
  }
  const text = `status ${response.status} without the error of a kbcore server; check the address`;
  return new KBError("NOT_A_SERVER", text, undefined, response.status, requestId);
}

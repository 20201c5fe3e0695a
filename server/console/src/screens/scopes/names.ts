// Names of scopes in requests, in the address and on the page.

/** The name of the base scope in requests about two scopes, and in the address. */
export const BASE = "default";

/** Return the name of a scope as the page shows it. */
export function titleOf(scope: string): string {
  return scope === BASE ? "the base" : scope;
}

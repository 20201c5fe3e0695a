import { KBError } from "./errors.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** An answer: a row of a goal of one literal, or the values of the variables of a goal of several. */
export type Answer = Schemas["Row"] | Schemas["Bindings"];

/** The answers of a goal, in order. */
export class Answers implements Iterable<string[]> {
  constructor(
    readonly goal: string,
    /** The answers as the server sent them. */
    readonly rows: readonly Answer[],
    /** Predicates without facts and rules, for a goal without answers. */
    readonly unknownPredicates: readonly string[] = [],
    /** The `Link` header, with the address of the next page. */
    readonly link: string = "",
    /** How often a function or an aggregate had no value, such as a division by zero or a whole number beyond 64 bits. */
    readonly warnings: number = 0,
  ) {}

  get length(): number {
    return this.rows.length;
  }

  /** Each answer as an array: all arguments of the goal, or the values of the variables of a goal of several literals. */
  *[Symbol.iterator](): Iterator<string[]> {
    for (const row of this.rows) {
      yield "args" in row && row.args !== undefined ? [...row.args] : Object.values((row as Schemas["Bindings"]).bindings);
    }
  }

  /** The only answer; throws KBError if there are none or several. */
  one(): string[] {
    const [first, ...others] = this;
    if (first !== undefined && others.length === 0) return first;
    const unknown = this.unknownPredicates.length ? `; no fact or rule for ${this.unknownPredicates.join(", ")}` : "";
    if (first === undefined) throw new KBError("NOT_FOUND", `${this.goal} has no answer${unknown}`);
    throw new KBError("VALIDATION_ERROR", `${this.goal} has ${this.length} answers`);
  }
}

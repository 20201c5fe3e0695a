// What a screen says before its first goal: an empty knowledge base leads to the examples.
import { Link, useSearchParams } from "wouter";

import { linkTo } from "../address";
import { usePredicates } from "../api/queries";

export function NotEmptyHint() {
  const [search] = useSearchParams();
  const predicates = usePredicates();
  if (predicates.length === 0) {
    return (
      <p className="soft">
        This tenant has no facts yet. <Link href={linkTo("start", search)}>Load an example</Link> or <Link href={linkTo("facts", search)}>add facts</Link>.
      </p>
    );
  }
  return (
    <p className="soft">
      Known predicates:{" "}
      {predicates.slice(0, 30).map(({ predicate, arity }) => (
        <Link key={`${predicate}/${arity}`} className="chip" href={linkTo("playground", search, { goal: sample(predicate, arity) })}>
          {predicate}/{arity}
        </Link>
      ))}
    </p>
  );
}

function sample(predicate: string, arity: number): string {
  const names = ["x", "y", "z", "u", "v", "w"];
  const args = Array.from({ length: arity }, (_, index) => `?${names[index] ?? `x${index}`}`);
  return arity === 0 ? predicate : `${predicate}(${args.join(", ")})`;
}

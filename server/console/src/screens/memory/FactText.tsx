// A fact as it is read: "mia lives in Berlin" for two arguments, else as an atom.
import { atomText } from "../../language/atom";

interface Readable {
  predicate: string;
  args: readonly string[];
  negated?: boolean | null;
}

export function FactText({ fact }: { fact: Readable }) {
  const [first, second, ...more] = fact.args;
  if (first === undefined || second === undefined || more.length > 0) return <code>{atomText(fact)}</code>;
  return (
    <span className="fact-text" title={atomText(fact)}>
      {fact.negated === true && <span className="kind absent">not</span>} <strong>{first}</strong> {fact.predicate.replace(/[_-]+/g, " ")} <strong>{second}</strong>
    </span>
  );
}

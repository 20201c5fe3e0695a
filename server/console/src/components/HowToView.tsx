// What would make a goal true or false: the smallest changes of stored facts.
import { useQuery } from "@tanstack/react-query";

import { dataOf, type Schemas } from "../api/client";
import { useConnection } from "../connection";
import { conditionText, isGuess, patternsOf, type Proposal } from "../language/conditions";
import { ErrorMessage } from "./ErrorMessage";

type HowTo = Schemas["HowTo"];

function useHowTo(goal: string, make: "true" | "false") {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["how-to", connection, goal, make],
    queryFn: async ({ signal }) =>
      (await dataOf(client.POST("/explain", { body: { text: goal, scope: connection.scope, howTo: true, make } as never, params: {} as never, signal }))) as unknown as HowTo,
    retry: false,
  });
}

export function HowToView({ goal, make }: { goal: string; make: "true" | "false" }) {
  const answer = useHowTo(goal, make);
  if (answer.error !== null) return <ErrorMessage error={answer.error} text={goal} />;
  if (answer.data === undefined) return <p role="status">Loading …</p>;
  const { goal: text, truth, proposals, truncated } = answer.data;
  if (truth === make) return <p><code>{text}</code> is {make} already.</p>;
  if (proposals.length === 0) {
    return truncated ? (
      <p>The search reached its limit before it found what makes <code>{text}</code> {make}.</p>
    ) : (
      <p>No change of at most 3 facts makes <code>{text}</code> {make}.</p>
    );
  }
  return (
    <div className="how-to">
      <p><code>{text}</code> would be {make} after one of these changes. Nothing is stored.</p>
      <ol>
        {patternsOf(goal, proposals).map(({ add, remove, values }) => (
          <li key={[...add, "", ...remove].join("\n")} className="card">
            <ChangeOf add={add} remove={remove} />
            {values.length > 0 && <p className="soft">for example with {values.map(({ variable, constants }) => `${variable} = ${constants.join(", ")}`).join("; ")}</p>}
          </li>
        ))}
      </ol>
      {truncated && <p className="soft">The search reached its limit: there may be other changes, also smaller ones.</p>}
    </div>
  );
}

function ChangeOf({ add, remove }: Proposal) {
  return (
    <ul className="premises">
      {add.map((fact) => <li key={fact} className="holds"><span>add</span> <code>{fact}</code></li>)}
      {remove.map((fact) => <li key={fact} className="missing"><span>remove</span> <code>{fact}</code></li>)}
    </ul>
  );
}

/** The first of the changes that would make a goal true, as a sentence; nothing without one, or if it is a guess. */
export function FirstChange({ goal }: { goal: string }) {
  const [first] = useHowTo(goal, "true").data?.proposals ?? [];
  if (first === undefined || isGuess(goal, first)) return null;
  const { begin, conditions } = conditionText(goal, first);
  return (
    <p>
      {begin} {conditions.map(({ word, fact }, index) => (
        <span key={fact}>{index > 0 && " "}{word} <code>{fact}</code></span>
      ))}
      . More under “How to”.
    </p>
  );
}

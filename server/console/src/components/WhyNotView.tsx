// Why a goal has no answer: the rule instances that came nearest, and the premise each one lacks.
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "wouter";

import { linkTo } from "../address";
import { dataOf, type Schemas } from "../api/client";
import { useConnection } from "../connection";
import { ErrorMessage } from "./ErrorMessage";
import { FirstChange } from "./HowToView";

type WhyNot = Schemas["WhyNot"];
type Candidate = Schemas["Candidate"];
type Premise = Candidate["missing"];

const LEVELS = 3;

export function WhyNotView({ goal }: { goal: string }) {
  const { connection, client } = useConnection();
  const answer = useQuery({
    queryKey: ["why-not", connection, goal],
    queryFn: async ({ signal }) =>
      (await dataOf(
        client.POST("/explain", { body: { text: goal, scope: connection.scope, whyNot: true, depth: LEVELS } as never, params: {} as never, signal }),
      )) as unknown as WhyNot,
  });
  if (answer.error !== null) return <ErrorMessage error={answer.error} text={goal} />;
  const found = answer.data;
  if (found === undefined) return <p role="status">Loading …</p>;
  if (found.holds) return <p>The goal holds, so there is nothing missing. See “Proof”.</p>;
  return (
    <div className="why-not">
      <p>
        <code>{found.goal}</code> {found.truth === "undefined" ? "is undefined: it depends on its own negation." : "does not hold."}
      </p>
      <FirstChange goal={goal} />
      {found.deniedBy != null && <p>It is denied: <code>{found.deniedBy.text}</code> holds.</p>}
      {found.unknownPredicates.map(({ name, arity, didYouMean }) => (
        <p key={`${name}/${arity}`} className="warning">
          No fact and no rule for {name}/{arity}.{didYouMean != null && <> Did you mean {didYouMean}?</>}
        </p>
      ))}
      {found.candidates.length > 0 && <h2>The rules that come nearest</h2>}
      <ol>
        {found.candidates.map((candidate, index) => (
          <li key={index} className="card">
            <CandidateView candidate={candidate} />
          </li>
        ))}
      </ol>
      {found.nearFacts.length > 0 && (
        <>
          <h2>Similar stored facts</h2>
          <ul>
            {found.nearFacts.map((fact) => <li key={fact.text}><code>{fact.text}</code></li>)}
          </ul>
        </>
      )}
      {found.truncated && <p className="soft">The search ended at the limit of this request: other rules may come nearer.</p>}
    </div>
  );
}

function CandidateView({ candidate }: { candidate: Candidate }) {
  return (
    <>
      {candidate.rule != null && <pre>{candidate.rule.text}</pre>}
      <ul className="premises">
        {candidate.satisfied.map((premise, index) => (
          <li key={index} className="holds"><span>holds</span> <code>{premise.text}</code></li>
        ))}
        <li className="missing">
          <span>{candidate.undefined ? "undefined" : "missing"}</span> <MissingPremise premise={candidate.missing} />
          {candidate.blockedBy != null && <> because <code>{candidate.blockedBy.text}</code> holds</>}
        </li>
      </ul>
      {candidate.because != null && (
        <div className="because">
          <p className="soft">The missing premise, one level down:</p>
          <CandidateView candidate={candidate.because} />
        </div>
      )}
    </>
  );
}

/** The missing premise, with a link that asks about it in turn. */
function MissingPremise({ premise }: { premise: Premise }) {
  const [search] = useSearchParams();
  const text = <code>{premise.text}</code>;
  if (premise.predicate == null || premise.text.startsWith("not ")) return text;
  return <Link href={linkTo("playground", search, { goal: premise.text, tab: "whynot" })}>{text}</Link>;
}

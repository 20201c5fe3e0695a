// What an edited text of a rule set would change: the differences and the impact of a dry run.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { dataOf, type Schemas } from "../../api/client";
import { useCheck, usePredicates } from "../../api/queries";
import { Editor } from "../../components/Editor";
import { ErrorMessage } from "../../components/ErrorMessage";
import { ImpactCounts, PredicateTable } from "../../components/ImpactView";
import { useConnection } from "../../connection";
import { DifferenceTable } from "./DifferenceTable";
import { useContents, type RuleSet } from "./requests";

type GoalImpact = Schemas["GoalImpact"];

export function EditedText({ set }: { set: RuleSet }) {
  const contents = useContents(set);
  if (contents.error !== null) return <ErrorMessage error={contents.error} />;
  return contents.data === undefined ? <p role="status">Loading …</p> : <DryRun key={set.version} set={set} stored={contents.data} />;
}

function DryRun({ set, stored }: { set: RuleSet; stored: string }) {
  const { connection, client } = useConnection();
  const [text, setText] = useState(stored);
  const [goal, setGoal] = useState("");
  const [sent, setSent] = useState<{ text: string; goal: string } | null>(null);
  const predicates = usePredicates();
  const check = useCheck("program");
  const dryRun = useQuery({
    queryKey: ["preview", connection, set, sent],
    enabled: sent !== null,
    queryFn: ({ signal }) => {
      const goals = sent === null || sent.goal === "" ? {} : { impactGoals: [sent.goal] };
      const body = { text: sent?.text, scope: set.scope, dryRun: true, impact: true, expectedVersion: set.version, ...goals };
      return dataOf(client.PUT("/rulesets/{name}", { params: { path: { name: set.name } } as never, body: body as never, signal }));
    },
    retry: false,
    gcTime: 0,
  });
  const start = () => {
    const next = { text, goal: goal.trim() };
    if (sent?.text === next.text && sent.goal === next.goal) void dryRun.refetch();
    else setSent(next);
  };
  const isCurrent = sent?.text === text;
  return (
    <>
      <p className="soft">Nothing is stored: <code>kbcore deploy</code> deploys files.</p>
      <Editor label={`Text of ${set.name}`} value={text} onChange={setText} onRun={start} check={check} predicates={predicates} numbered />
      <div className="fields">
        <label>
          Goal whose answers to compare (optional)
          <input value={goal} spellCheck={false} autoComplete="off" placeholder="may_enter(?who)" onChange={(event) => setGoal(event.target.value)} />
        </label>
      </div>
      <p className="toolbar">
        <button type="button" className="primary" onClick={start} disabled={dryRun.isFetching}>Show the impact</button>
        <span className="soft"><kbd>Ctrl</kbd>+<kbd>Enter</kbd></span>
        <button type="button" onClick={() => setText(stored)} disabled={text === stored}>Undo the edits</button>
      </p>
      {dryRun.error !== null && <ErrorMessage error={dryRun.error} text={sent?.text ?? ""} />}
      {dryRun.isFetching && <p role="status">Computing the impact …</p>}
      {dryRun.data !== undefined && dryRun.error === null && (
        <section aria-label="Impact" className="impact">
          <h3>Impact{isCurrent ? "" : " of the text before the last edit"}</h3>
          {dryRun.data.warnings.map((warning) => <p key={warning} className="warning">{warning}</p>)}
          {dryRun.data.impact != null && (
            <>
              <ImpactCounts {...dryRun.data.impact} />
              {dryRun.data.impact.byPredicate.length > 0 && <PredicateTable rows={dryRun.data.impact.byPredicate} />}
              {dryRun.data.impact.goals.map((each) => <AnswersOf key={each.goal} impact={each} />)}
            </>
          )}
          <h3>Differences</h3>
          <DifferenceTable difference={dryRun.data} before={`Version ${set.version}`} after="Edited text" />
        </section>
      )}
    </>
  );
}

/** The answers of a goal that come and go. */
function AnswersOf({ impact }: { impact: GoalImpact }) {
  const lists = [
    { title: "New answers", sign: "+", className: "becomesTrue", answers: impact.becomesTrue, count: impact.becomesTrueCount },
    { title: "Answers that go", sign: "−", className: "becomesFalse", answers: impact.becomesFalse, count: impact.becomesFalseCount },
  ];
  return (
    <>
      <h3><code>{impact.goal}</code></h3>
      {impact.becomesTrueCount + impact.becomesFalseCount === 0 && <p>Its answers stay the same.</p>}
      {lists.map(({ title, sign, className, answers, count }) =>
        count === 0 ? null : (
          <section key={title} aria-label={title}>
            <h4>{title} <span className="soft">{count.toLocaleString("en")}</span></h4>
            <ul className={`impact-changes ${className}`} tabIndex={0} aria-label={title}>
              {answers.map((answer, index) => (
                <li key={index}><span aria-hidden="true">{sign}</span> <code>{answerText(answer)}</code></li>
              ))}
            </ul>
            {count > answers.length && <p className="soft">The first {answers.length} of {count.toLocaleString("en")}.</p>}
          </section>
        ),
      )}
    </>
  );
}

function answerText(answer: Record<string, string>): string {
  const pairs = Object.entries(answer);
  return pairs.length === 0 ? "holds" : pairs.map(([name, value]) => `${name} = ${value}`).join(", ");
}

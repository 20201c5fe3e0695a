// A question in words: the goals that it can mean, with the answers of the best ones.
import { useQuery } from "@tanstack/react-query";

import { dataOf } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";

/** Why the question has no answer, by the reason of the server. */
const REASONS: Record<string, string> = {
  noConstant: "No name in the question is a constant of a fact: write it as it is stored.",
  noGoal: "The words of the question are those of no predicate.",
  noAnswer: "The goals that the question can mean have no answers.",
  disagree: "The question can mean several goals, and their answers differ.",
  unfinished: "The search reached its limit before it had an answer.",
};

export function SuggestedGoals({ question, onRun }: { question: string; onRun: (goal: string) => void }) {
  const { connection, client } = useConnection();
  const suggestions = useQuery({
    queryKey: ["suggest", connection, question],
    queryFn: ({ signal }) => dataOf(client.POST("/goals/suggest", { body: { question, scope: connection.scope } as never, params: {} as never, signal })),
    retry: false,
  });
  if (suggestions.error !== null) return <ErrorMessage error={suggestions.error} />;
  if (suggestions.data === undefined) return <p role="status">Looking for goals …</p>;
  const { answers, goal: best, reason, goals } = suggestions.data;
  return (
    <section aria-label="Suggested goals">
      <p role="status">
        {answers.length > 0 ? <><strong>{answers.join(", ")}</strong> {answers.length === 1 ? "answers" : "answer"} <code>{best}</code></> : (REASONS[reason ?? ""] ?? "No goal has this meaning.")}
      </p>
      {goals.length > 0 && (
        <ol className="goal-list card" aria-label="Goals that the question can mean">
          {goals.map(({ goal, coverage, answers: some, hasMore }) => (
            <li key={goal}>
              <button type="button" onClick={() => onRun(goal)}>
                <code>{goal}</code> <span className="soft">{Math.round(coverage * 100)}% of the words</span>
                {some != null && some.length > 0 && <span className="answers">{some.join(", ")}{hasMore && ", …"}</span>}
              </button>
            </li>
          ))}
        </ol>
      )}
      {goals.length > 0 && <p className="soft">Choose a goal to see its answers with their proofs.</p>}
    </section>
  );
}

// The slowest goals of the tenant, with links that open them in the playground.
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "wouter";

import { linkTo } from "../../address";
import { dataOf } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";

const POLL_MS = 10_000;

export function SlowGoals() {
  const { connection, client } = useConnection();
  const [search] = useSearchParams();
  const { error, data } = useQuery({
    queryKey: ["slow goals", { ...connection, scope: null }],
    queryFn: ({ signal }) => dataOf(client.GET("/goals/slow", { params: {} as never, signal })),
    refetchInterval: (query) => (query.state.error === null ? POLL_MS : false),
  });
  if (error !== null) return <ErrorMessage error={error} />;
  if (data === undefined) return <p role="status">Loading …</p>;
  if (data.goals.length === 0) return <p className="soft">No goal of this tenant took 10 ms or more in the last hour.</p>;
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="List of slow goals">
      <table>
        <thead>
          <tr><th scope="col">Goal</th><th scope="col" className="number">Milliseconds</th><th scope="col" className="number">Rows derived</th><th scope="col" className="number">Times</th><th scope="col">Outcome</th><th scope="col">When</th><th scope="col">Plan</th></tr>
        </thead>
        <tbody>
          {data.goals.map(({ goal, isCut, kind, ms, rowsMade, outcome, at, count }) => (
            <tr key={`${kind} ${goal}`}>
              <td>{isCut ? <code>{goal} …</code> : <Link href={linkTo("playground", search, { goal })}><code>{goal}</code></Link>}</td>
              <td className="number">{ms.toLocaleString("en", { maximumFractionDigits: 1 })}</td>
              <td className="number">{rowsMade.toLocaleString("en")}</td>
              <td className="number">{count.toLocaleString("en")}</td>
              <td>{outcome}</td>
              <td>{new Date(at).toLocaleTimeString("en-GB")}</td>
              <td>{!isCut && <Link href={linkTo("playground", search, { goal, tab: "plan" })} aria-label={`Plan of ${goal}`}>Plan</Link>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

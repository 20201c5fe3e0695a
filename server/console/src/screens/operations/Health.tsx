// The state of each subsystem, and the replication of the node.
import { useQuery } from "@tanstack/react-query";

import { ApiError, dataOf, errorOf, type Schemas } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";

const POLL_MS = 5000;
const NOT_REPLICATING = "this node does not replicate";
const TITLES: Record<string, string> = { storage: "Storage", recovery: "Recovery", replication: "Replication", llm: "Language model", search: "Search" };

export function Health() {
  const { client } = useConnection();
  const health = useQuery({
    queryKey: ["health"],
    queryFn: async ({ signal }): Promise<Schemas["Readiness"]> => {
      const { data, error, response } = await client.GET("/health/ready", { signal }).catch((failure: unknown) => {
        if (failure instanceof TypeError) throw new ApiError(0, "UNREACHABLE", "The server does not respond.");
        throw failure;
      });
      // A server that is not ready answers 503 with the same members.
      const readiness = (data ?? error) as Partial<Schemas["Readiness"]> | undefined;
      if (readiness?.checks === undefined) throw errorOf(response.status, error);
      return readiness as Schemas["Readiness"];
    },
    refetchInterval: POLL_MS,
  });
  if (health.error !== null) return <ErrorMessage error={health.error} />;
  if (health.data === undefined) return <p role="status">Loading …</p>;
  const { status, checks, writable } = health.data;
  return (
    <>
      <p>
        <Mark state={status === "healthy" ? "pass" : status === "degraded" ? "warn" : "fail"} text={status} />{" "}
        {writable ? "The server takes writes." : "The server does not take writes."}
      </p>
      <div className="scroll" tabIndex={0} role="group" aria-label="Subsystems">
        <table>
          <thead><tr><th scope="col">Subsystem</th><th scope="col">State</th><th scope="col">Message</th></tr></thead>
          <tbody>
            {Object.entries(checks).map(([name, check]) => (
              <tr key={name}>
                <th scope="row">{TITLES[name] ?? name}</th>
                <td><Mark state={check.status} text={check.status} /></td>
                <td>{check.message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <h2>Replication</h2>
      {checks["replication"]?.message === NOT_REPLICATING ? <NotReplicating /> : <Replication />}
    </>
  );
}

function Replication() {
  const { connection, client } = useConnection();
  const replication = useQuery({
    queryKey: ["replication", connection.key],
    queryFn: ({ signal }) => dataOf(client.GET("/replication/status", { signal })),
    refetchInterval: (query) => (query.state.error === null ? POLL_MS : false),
    retry: false,
  });
  const { error, data } = replication;
  if (error instanceof ApiError && error.status === 404) return <NotReplicating />;
  if (error instanceof ApiError && (error.status === 403 || error.status === 401)) {
    return <p className="soft">The state of the replication is shown to keys of the role <code>replica</code> and to the replication token only.</p>;
  }
  if (error instanceof ApiError && error.status === 409) return <p className="soft">{error.message}</p>;
  if (error !== null) return <ErrorMessage error={error} />;
  if (data === undefined) return <p role="status">Loading …</p>;
  return (
    <>
      <p>
        <strong>{data.role === "LEADER" ? "Leader" : "Follower"}</strong> of the log <code>{data.logId}</code>, term {data.epoch}, record{" "}
        {data.head.toLocaleString("en")}, synced to {data.durable.toLocaleString("en")}, snapshot at {data.snapshot.toLocaleString("en")}.
      </p>
      {data.leader !== undefined && (
        <p>
          Follows <code>{data.leader.url ?? "no leader"}</code>, {data.leader.lagRecords.toLocaleString("en")} records behind
          {data.leader.lagMs !== null && <> ({data.leader.lagMs.toLocaleString("en")} ms)</>}.{" "}
          {data.leader.trouble !== null && <span className="warning">{data.leader.trouble}</span>}
        </p>
      )}
      {data.followers.length > 0 && (
        <div className="scroll" tabIndex={0} role="group" aria-label="Followers">
          <table>
            <thead>
              <tr><th scope="col">Follower</th><th scope="col" className="number">Records behind</th><th scope="col" className="number">Last contact</th><th scope="col">In sync</th></tr>
            </thead>
            <tbody>
              {data.followers.map((follower) => (
                <tr key={follower.name}>
                  <th scope="row">{follower.name}</th>
                  <td className="number">{follower.lagRecords.toLocaleString("en")}</td>
                  <td className="number">{follower.lastContactMs.toLocaleString("en")} ms</td>
                  <td>{follower.inSync ? "yes" : "no"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function NotReplicating() {
  return <p className="soft">This server works alone: the setting <code>REPLICATION_MODE</code> is off.</p>;
}

function Mark({ state, text }: { state: "pass" | "warn" | "fail"; text: string }) {
  return <span className={`kind mark-${state}`}>{text}</span>;
}

// The nodes of the cluster with their shards, and the shards that move.
import { useQuery } from "@tanstack/react-query";

import { dataOf } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { total } from "../../prometheus";
import type { Reading } from "./readings";

const POLL_MS = 5000;

export function Cluster({ readings }: { readings: readonly Reading[] }) {
  const { connection, client } = useConnection();
  const samples = readings.at(-1)?.samples;
  const isNode = samples !== undefined && (total(samples, "svc_cluster_nodes") ?? 0) > 0;
  const { error, data } = useQuery({
    queryKey: ["cluster", connection.key],
    enabled: isNode,
    queryFn: ({ signal }) => dataOf(client.GET("/admin/cluster", { signal })),
    refetchInterval: (query) => (query.state.error === null ? POLL_MS : false),
    retry: false,
  });
  if (samples === undefined) return null;
  if (!isNode) return <p className="soft">This server is no node of a cluster: the setting <code>CLUSTER_URL</code> is empty.</p>;
  if (error !== null) return <ErrorMessage error={error} />;
  if (data === undefined) return <p role="status">Loading …</p>;
  const target = new Map(data.moving.map(({ shard, to }) => [shard, to]));
  return (
    <>
      <p>{data.nodes.length} {data.nodes.length === 1 ? "node" : "nodes"}, {data.shards} shards{data.moving.length > 0 && <>, <strong>{data.moving.length} moving</strong></>}. This is <strong>{data.node}</strong>.</p>
      {data.unowned.length > 0 && <p className="warning">No node has the {data.unowned.length === 1 ? "shard" : "shards"} {data.unowned.join(", ")}: requests of their tenants get 503.</p>}
      <ul className="nodes" aria-label="Nodes of the cluster">
        {data.nodes.map(({ name, url, weight, state, shards }) => (
          <li key={name} className="card">
            <strong>{name}</strong> <span className={state === "active" ? "kind mark-pass" : "kind mark-warn"}>{state}</span>
            <span className="soft"> {url}, weight {weight}</span>
            <ul className="shards" aria-label={`Shards of ${name}`}>
              {shards.map((shard) => {
                const to = target.get(shard);
                return <li key={shard} className={to === undefined ? undefined : "moving"}>{shard}{to !== undefined && to !== name && <span> → {to}</span>}</li>;
              })}
              {shards.length === 0 && <li className="soft none">no shard</li>}
            </ul>
          </li>
        ))}
      </ul>
      {data.moved.length > 0 && <p className="soft">Moved by hand: {data.moved.map(({ shard, node }) => `shard ${shard} to ${node}`).join(", ")}.</p>}
    </>
  );
}

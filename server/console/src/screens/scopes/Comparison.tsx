// The differences of two scopes, and the merge of one into the other.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { useAddress } from "../../address";
import { dataOf, type Schemas } from "../../api/client";
import { parseExactly } from "../../api/exactJson";
import { useMayWrite } from "../../api/queries";
import { Dialog } from "../../components/Dialog";
import { ErrorMessage } from "../../components/ErrorMessage";
import { VirtualTable } from "../../components/VirtualTable";
import { useConnection } from "../../connection";
import { atomText } from "../../language/atom";
import { titleOf } from "./names";

type Row = Schemas["Row"];

const STRATEGIES = [
  { id: "SOURCE_WINS", title: "The source wins", result: (source: Row) => factText(source) },
  { id: "TARGET_WINS", title: "The target wins", result: (_: Row, target: Row) => factText(target) },
  { id: "KEEP_BOTH", title: "Keep both", result: keepBoth },
  { id: "REJECT", title: "Reject the merge", result: () => "nothing is merged" },
] as const;

interface Properties {
  source: string;
  target: string;
  onMessage: (message: string) => void;
}

export function Comparison({ source, target, onMessage }: Properties) {
  const { connection, client } = useConnection();
  const [strategyName, setStrategy] = useAddress("strategy");
  const mayWrite = useMayWrite();
  const [merging, setMerging] = useState(false);
  const strategy = STRATEGIES.find(({ id }) => id === strategyName) ?? STRATEGIES[0];
  const body = { sourceScope: source, targetScope: target };
  const comparison = useQuery({
    queryKey: ["scope diff", { ...connection, scope: null }, body],
    queryFn: async ({ signal }) => {
      const text = await dataOf(client.POST("/scope/diff", { body: body as never, params: {} as never, signal, parseAs: "text" }));
      return parseExactly(text) as Schemas["Compared"];
    },
  });
  if (comparison.error !== null) return <ErrorMessage error={comparison.error} />;
  if (comparison.data === undefined) return <p role="status">Comparing …</p>;
  const { added: onlyTarget, removed: onlySource, modified, unchanged } = comparison.data;
  return (
    <>
      <p role="status">
        {onlySource.length} only in {titleOf(source)}, {onlyTarget.length} only in {titleOf(target)}, {modified.length} in conflict, {unchanged} equal.
      </p>
      <div className="toolbar">
        <label className="inline">
          Conflicts
          <select value={strategy.id} onChange={(event) => setStrategy(event.target.value)}>
            {STRATEGIES.map(({ id, title }) => <option key={id} value={id}>{title}</option>)}
          </select>
        </label>
        {mayWrite && (
          <button type="button" className="primary" onClick={() => setMerging(true)} disabled={onlySource.length + modified.length === 0}>
            Merge {titleOf(source)} into {titleOf(target)}
          </button>
        )}
      </div>
      {modified.length > 0 && (
        <section aria-label="Conflicts">
          <h3>Conflicts <span className="soft">{modified.length}</span></h3>
          <VirtualTable
            label="Conflicts"
            columns={[`source: ${titleOf(source)}`, `target: ${titleOf(target)}`, "after the merge"]}
            rows={modified}
            cells={({ before, after }) => [factText(before), factText(after), strategy.result(before, after)]}
          />
        </section>
      )}
      <FactList title={`Only in the source, ${titleOf(source)}`} note="added to the target by a merge" rows={onlySource} />
      <FactList title={`Only in the target, ${titleOf(target)}`} note="not changed by a merge" rows={onlyTarget} />
      {merging && (
        <MergeDialog
          source={source}
          target={target}
          strategy={strategy}
          counts={[onlySource.length, modified.length]}
          onClose={(message) => {
            setMerging(false);
            if (message !== null) onMessage(message);
          }}
        />
      )}
    </>
  );
}

function FactList({ title, note, rows }: { title: string; note: string; rows: readonly Row[] }) {
  if (rows.length === 0) return null;
  return (
    <section aria-label={title}>
      <h3>{title} <span className="soft">{rows.length}, {note}</span></h3>
      <VirtualTable label={title} columns={["fact"]} rows={rows} cells={(row) => [factText(row)]} />
    </section>
  );
}

interface MergeProperties {
  source: string;
  target: string;
  strategy: { id: string; title: string };
  /** How many facts only the source has, and how many conflicts there are. */
  counts: readonly [number, number];
  onClose: (message: string | null) => void;
}

function MergeDialog({ source, target, strategy, counts: [added, conflicts], onClose }: MergeProperties) {
  const { client } = useConnection();
  const queries = useQueryClient();
  const merge = useMutation({
    mutationFn: () =>
      dataOf(client.POST("/scope/merge", { body: { sourceScope: source, targetScope: target, strategy: strategy.id } as never, params: {} as never })),
    onSuccess: async ({ merged, conflictsResolved }) => {
      onClose(`Merged ${titleOf(source)} into ${titleOf(target)}: ${merged} changed, ${conflictsResolved} conflicts resolved.`);
      await queries.invalidateQueries();
    },
  });
  return (
    <Dialog title={`Merge ${titleOf(source)} into ${titleOf(target)}`} onClose={() => onClose(null)}>
      <p>
        {added} {added === 1 ? "fact is" : "facts are"} added to {titleOf(target)}. {conflicts} {conflicts === 1 ? "conflict" : "conflicts"}: {strategy.title.toLowerCase()}.
      </p>
      <p className="soft">Rules are not merged, and {titleOf(source)} does not change.</p>
      {merge.error !== null && <ErrorMessage error={merge.error} />}
      <p className="toolbar">
        <button type="button" className="primary" onClick={() => merge.mutate()} disabled={merge.isPending}>Merge</button>
        <button type="button" onClick={() => onClose(null)}>Cancel</button>
      </p>
    </Dialog>
  );
}

/** Return a fact with the details in which the facts of two scopes can differ. */
function factText(row: Row): string {
  const details = [
    ...(row.confidence === null ? [] : [`confidence ${row.confidence}`]),
    ...(row.validFrom === null || row.validFrom === row.createdAt ? [] : [`from ${timeText(row.validFrom)}`]),
    ...(row.validUntil === null ? [] : [`until ${timeText(row.validUntil)}`]),
    ...(Object.keys(row.metadata).length === 0 ? [] : [JSON.stringify(row.metadata)]),
  ];
  return details.length === 0 ? atomText(row) : `${atomText(row)} · ${details.join(", ")}`;
}

function timeText(ms: number): string {
  return new Date(ms).toLocaleString("en-GB");
}

/** Return what KEEP_BOTH leaves of two facts: both signs, or one fact with the higher confidence (unknown counts as 1). */
function keepBoth(source: Row, target: Row): string {
  if (source.negated !== target.negated) return `${factText(source)}; ${factText(target)}`;
  const confidence = source.confidence === null || target.confidence === null ? null : Math.max(source.confidence, target.confidence);
  return `${atomText(source)} · one fact of both, confidence ${confidence ?? "1"}`;
}

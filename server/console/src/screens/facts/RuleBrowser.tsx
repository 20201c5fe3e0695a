// The rules of the scope, and the editor with the impact of a rule before it is saved.
import { useMutation } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";

import { useAddressParts } from "../../address";
import { send, type Connection, type Schemas } from "../../api/client";
import { useCheck, useMayWrite, usePredicates } from "../../api/queries";
import { Editor } from "../../components/Editor";
import { ErrorMessage } from "../../components/ErrorMessage";
import { ImpactOf, useImpact, type Change } from "../../components/ImpactView";
import { VirtualTable } from "../../components/VirtualTable";
import { useConnection } from "../../connection";
import { RetractDialog } from "./FactDialogs";
import { inTransaction, useRefresh, useRules } from "./requests";

/** A rule, or the declaration of a phrase, which has no head. */
interface Statement {
  id: string;
  text: string;
  scope: string | null;
  head: Schemas["RuleAtom"] | null;
}

interface Properties {
  /** Only rules with this head, if it is not null. */
  predicate: { predicate: string; arity: number } | null;
  onMessage: (message: string | null) => void;
}

export function RuleBrowser({ predicate, onMessage }: Properties) {
  const { connection } = useConnection();
  const [search, change] = useAddressParts();
  const [selected, setSelected] = useState<number | null>(null);
  const [retracting, setRetracting] = useState(false);
  const query = useRules();
  const text = search.get("text") ?? "";
  const editing = search.get("rule");
  const statements = useMemo((): Statement[] => {
    const phrases = (query.data?.phrases ?? []).map((phrase) => ({ ...phrase, head: null }));
    return [...(query.data?.rules ?? []), ...phrases];
  }, [query.data]);
  const mayWrite = useMayWrite();
  const rows = useMemo(
    () =>
      statements.filter(
        (each) =>
          each.text.toLowerCase().includes(text.toLowerCase()) &&
          (predicate === null || (each.head?.predicate === predicate.predicate && each.head.args.length === predicate.arity)),
      ),
    [statements, text, predicate],
  );
  const statement = selected === null ? undefined : rows[Math.min(selected, rows.length - 1)];
  const edited = statements.find(({ id }) => id === editing);
  const edit = (each: Statement) => {
    if (each.head !== null) change({ rule: each.id, draft: null }, { replace: false });
  };
  if (query.error !== null) return <ErrorMessage error={query.error} />;
  if (query.data === undefined) return <p role="status">Loading …</p>;
  return (
    <>
      {(editing === "new" || edited !== undefined) && <RuleEditor key={editing} rule={edited ?? null} onMessage={onMessage} />}
      {editing !== null && editing !== "new" && edited === undefined && <p className="warning">This rule is not stored any more.</p>}
      <div className="fields filters" role="search" aria-label="Filter rules">
        <label>
          Text in the rule
          <input type="search" value={text} spellCheck={false} autoComplete="off" onChange={(event) => change({ text: event.target.value })} />
        </label>
      </div>
      <p role="status">
        {rows.length.toLocaleString("en")} {rows.length === 1 ? "rule" : "rules"}
        {predicate !== null && <> for <code>{predicate.predicate}/{predicate.arity}</code></>}
      </p>
      {rows.length > 0 && (
        <VirtualTable
          label="Rules"
          columns={rows.some(({ scope }) => scope !== null) ? ["rule", "scope"] : ["rule"]}
          rows={rows}
          cells={(row) => (rows.some(({ scope }) => scope !== null) ? [row.text, row.scope ?? "every scope"] : [row.text])}
          selected={statement === undefined ? null : rows.indexOf(statement)}
          onSelect={setSelected}
          onOpen={(index) => mayWrite && rows[index] !== undefined && edit(rows[index])}
        />
      )}
      {statement !== undefined && (
        <div role="group" aria-label="The selected rule">
          <pre className="wrapped" tabIndex={0}>{statement.text}</pre>
          <p className="toolbar">
            {mayWrite && statement.head !== null && <button type="button" onClick={() => edit(statement)}>Edit</button>}
            {mayWrite && <button type="button" className="danger" onClick={() => setRetracting(true)}>Retract</button>}
          </p>
        </div>
      )}
      {statement !== undefined && retracting && (
        <RetractDialog
          title={statement.head === null ? "Retract a phrase" : "Retract a rule"}
          text={statement.text}
          change={statement.head === null ? null : { forgetRules: [statement.id], scope: statement.scope }}
          write={async () => (await send(connection, "/retract/rule", { body: { id: statement.id, scope: statement.scope } })).text()}
          onClose={(message) => {
            setRetracting(false);
            if (message !== null) onMessage(message);
          }}
        />
      )}
    </>
  );
}

/** Edit a rule, or write a new one: preview its impact, then save it. The previewed text is in the address. */
function RuleEditor({ rule, onMessage }: { rule: Statement | null; onMessage: (message: string | null) => void }) {
  const { connection } = useConnection();
  const [search, changeAddress] = useAddressParts();
  const draft = search.get("draft");
  const [text, setText] = useState(draft ?? rule?.text ?? "");
  const predicates = usePredicates();
  const check = useCheck("program");
  const refresh = useRefresh();
  const scope = rule === null ? connection.scope : rule.scope;
  const change: Change | null = draft === null ? null : { teach: draft, scope, ...(rule === null ? {} : { forgetRules: [rule.id] }) };
  const impact = useImpact(change);
  useEffect(() => {
    if (draft !== null) setText(draft);
  }, [draft]);
  const close = () => changeAddress({ rule: null, draft: null });
  const save = useMutation({
    mutationFn: () => (rule === null ? teach(connection, text, scope) : replaceRule(connection, rule, text)),
    onSuccess: async (message) => {
      onMessage(message);
      close();
      await refresh();
    },
  });
  const preview = () => {
    if (text.trim() === "") return;
    save.reset();
    if (text === draft) void impact.refetch();
    else changeAddress({ draft: text });
  };
  // A preview over its limit is no reason against saving; one that the server refuses is.
  const isPreviewed = text === draft && !impact.isFetching && (impact.data !== undefined || (impact.error as { status?: number } | null)?.status === 422);
  return (
    <section aria-label={rule === null ? "New rule" : "Edit the rule"} className="card rule-editor">
      <h2>{rule === null ? "New rule" : "Edit the rule"}</h2>
      <Editor label="Rule" value={text} onChange={setText} onRun={preview} check={check} predicates={predicates} placeholder="grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)." numbered focused />
      <p className="toolbar">
        <button type="button" onClick={preview} disabled={text.trim() === "" || impact.isFetching}>Preview</button>
        <span className="soft"><kbd>Ctrl</kbd>+<kbd>Enter</kbd></span>
        <button type="button" className="primary" onClick={() => save.mutate()} disabled={!isPreviewed || save.isPending} aria-describedby="save-hint">Save</button>
        <button type="button" onClick={close}>Cancel</button>
        <span id="save-hint" className="soft">{isPreviewed ? `Saves to ${scope ?? "the base"}.` : "Preview the impact, then save."}</span>
      </p>
      {save.error !== null && <ErrorMessage error={save.error} text={text} />}
      {draft !== null && save.error === null && (
        <section aria-label="Impact">
          <h3>Impact{text === draft ? "" : " of the text before the last edit"}</h3>
          <ImpactOf impact={impact} text={draft} />
        </section>
      )}
    </section>
  );
}

/** Store a text of rules and facts; return what was stored, with the warnings about it. */
async function teach(connection: Connection, text: string, scope: string | null, headers: Record<string, string> = {}): Promise<string> {
  const response = await send(connection, "/teach", { body: { text, scope }, headers });
  const warnings = decodeURIComponent(response.headers.get("X-Rule-Warnings") ?? "");
  const stored = (await response.text()).trim().split("\n").join("; ");
  return warnings === "" ? stored : `${stored}. Warning: ${warnings}`;
}

async function replaceRule(connection: Connection, rule: Statement, text: string): Promise<string> {
  let message = "";
  await inTransaction(connection, async (headers) => {
    await send(connection, "/retract/rule", { body: { id: rule.id, scope: rule.scope }, headers });
    message = await teach(connection, text, rule.scope, headers);
  });
  return message;
}

// Scopes: fork, compare, merge with the conflicts side by side, delete.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { useAddressParts } from "../address";
import { dataOf, send } from "../api/client";
import { useMayWrite, useScopes } from "../api/queries";
import { Dialog } from "../components/Dialog";
import { ErrorMessage } from "../components/ErrorMessage";
import { useConnection } from "../connection";
import { Comparison } from "./scopes/Comparison";
import { BASE, titleOf } from "./scopes/names";
import "./scopes.css";

type Action = { kind: "fork" | "delete"; scope: string };

export default function Scopes() {
  const { connection, update } = useConnection();
  const [search, change] = useAddressParts();
  const scopes = useScopes();
  const mayWrite = useMayWrite();
  const [action, setAction] = useState<Action | null>(null);
  const [message, setMessage] = useState<string | null>(null);
  const names = [BASE, ...(scopes.data ?? [])];
  const source = search.get("source");
  const target = search.get("target") ?? BASE;
  const close = (done: string | null) => {
    setAction(null);
    if (done !== null) setMessage(done);
  };
  return (
    <>
      <h1>Scopes</h1>
      <p className="soft">A fork is a copy of a scope. Facts and rules of the fork change without an effect on the scope that it was made from.</p>
      <p role="status">{message}</p>
      {scopes.error !== null && <ErrorMessage error={scopes.error} />}
      {scopes.data !== undefined && (
        <ul className="scopes card" aria-label="Scopes">
          {names.map((name) => (
            <li key={name}>
              <strong>{titleOf(name)}</strong>
              {(connection.scope ?? BASE) === name && <span className="kind">shown on all screens</span>}
              <span className="toolbar">
                {mayWrite && <button type="button" aria-label={`Fork ${titleOf(name)}`} onClick={() => setAction({ kind: "fork", scope: name })}>Fork</button>}
                {(connection.scope ?? BASE) !== name && (
                  <button type="button" aria-label={`Show ${titleOf(name)} on all screens`} onClick={() => update({ scope: name === BASE ? null : name })}>Show</button>
                )}
                {name !== BASE && (
                  <>
                    <button type="button" aria-label={`Compare ${name} with the base`} onClick={() => change({ source: name, target: null }, { replace: false })}>Compare</button>
                    {mayWrite && <button type="button" className="danger" aria-label={`Delete ${name}`} onClick={() => setAction({ kind: "delete", scope: name })}>Delete</button>}
                  </>
                )}
              </span>
            </li>
          ))}
        </ul>
      )}
      {scopes.data?.length === 0 && <p className="soft">There are no scopes yet besides the base. Fork the base to try a change out.</p>}
      {names.length > 1 && (
        <section aria-label="Comparison">
          <h2>Compare and merge</h2>
          <div className="fields">
            <ScopeField label="Source: merge from" value={source ?? ""} names={names} onChange={(name) => change({ source: name })} optional />
            <ScopeField label="Target: merge into" value={target} names={names} onChange={(name) => change({ target: name === BASE ? null : name })} />
          </div>
          {source !== null && source === target && <p className="soft">Choose two different scopes.</p>}
          {source !== null && source !== target && <Comparison key={`${source} ${target}`} source={source} target={target} onMessage={setMessage} />}
        </section>
      )}
      {action?.kind === "fork" && <ForkDialog source={action.scope} names={names} onClose={close} />}
      {action?.kind === "delete" && <DeleteDialog scope={action.scope} onClose={close} />}
    </>
  );
}

function ScopeField({ label, value, names, onChange, optional = false }: { label: string; value: string; names: string[]; onChange: (name: string) => void; optional?: boolean }) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        {optional && <option value="">Choose a scope</option>}
        {value !== "" && !names.includes(value) && <option value={value}>{value}</option>}
        {names.map((name) => <option key={name} value={name}>{titleOf(name)}</option>)}
      </select>
    </label>
  );
}

function ForkDialog({ source, names, onClose }: { source: string; names: string[]; onClose: (message: string | null) => void }) {
  const { client } = useConnection();
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [overwrite, setOverwrite] = useState(false);
  const exists = names.includes(name.trim());
  const fork = useMutation({
    mutationFn: () =>
      dataOf(client.POST("/scope/fork", { body: { sourceScope: source, targetScope: name.trim(), overwrite: exists && overwrite } as never, params: {} as never })),
    onSuccess: async ({ copied }) => {
      onClose(`Forked ${titleOf(source)} to ${name.trim()}: ${copied.toLocaleString("en")} ${copied === 1 ? "fact" : "facts"} copied.`);
      await queries.invalidateQueries();
    },
  });
  return (
    <Dialog title={`Fork ${titleOf(source)}`} onClose={() => onClose(null)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          fork.mutate();
        }}
      >
        <div className="fields">
          <label>
            Name of the new scope
            <input value={name} onChange={(event) => setName(event.target.value)} spellCheck={false} autoComplete="off" autoFocus />
          </label>
        </div>
        {exists && <label className="inline"><input type="checkbox" checked={overwrite} onChange={(event) => setOverwrite(event.target.checked)} /> Replace the facts and rules of {name.trim()}</label>}
        {fork.error !== null && <ErrorMessage error={fork.error} />}
        <p className="toolbar">
          <button type="submit" className="primary" disabled={name.trim() === "" || (exists && !overwrite) || fork.isPending}>Fork</button>
          <button type="button" onClick={() => onClose(null)}>Cancel</button>
        </p>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ scope, onClose }: { scope: string; onClose: (message: string | null) => void }) {
  const { connection, update } = useConnection();
  const queries = useQueryClient();
  const [, change] = useAddressParts();
  const remove = useMutation({
    mutationFn: async () => {
      await send(connection, `/scope/${encodeURIComponent(scope)}`, { method: "DELETE" });
    },
    onSuccess: async () => {
      onClose(`Deleted ${scope}.`);
      if (connection.scope === scope) update({ scope: null });
      else change({ source: null, target: null });
      await queries.invalidateQueries();
    },
  });
  return (
    <Dialog title={`Delete ${scope}`} onClose={() => onClose(null)}>
      <p>All facts and rules of the scope <code>{scope}</code> are deleted. Other scopes do not change.</p>
      {remove.error !== null && <ErrorMessage error={remove.error} />}
      <p className="toolbar">
        <button type="button" className="danger" onClick={() => remove.mutate()} disabled={remove.isPending}>Delete</button>
        <button type="button" onClick={() => onClose(null)} data-focused>Cancel</button>
      </p>
    </Dialog>
  );
}

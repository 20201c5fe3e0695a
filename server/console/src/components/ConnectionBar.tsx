// What the page shows: database, tenant, scope, view and time, each as a menu; and the key.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { useAuthStatus, useDatabases, useMayWrite, useScopes, useTenants, useWhoAmI } from "../api/queries";
import { dataOf } from "../api/client";
import { useConnection } from "../connection";
import { instantText, timeText, type TimeKind } from "../time";
import { ErrorMessage } from "./ErrorMessage";
import { Menu } from "./Menu";
import { Picker } from "./Picker";
import { ViewMenu } from "./ViewMenu";

/** Ids of options that are no names: names have no spaces. */
const OPEN = "open ";
const BASE = "the base";

export function ConnectionBar() {
  return (
    <div className="where" role="group" aria-label="Shown on all screens">
      <DatabaseMenu />
      <span className="slash" aria-hidden="true">/</span>
      <TenantMenu />
      <span className="slash" aria-hidden="true">/</span>
      <ScopeMenu />
      <ViewMenu />
      <TimeMenu />
    </div>
  );
}

function DatabaseMenu() {
  const { connection, update } = useConnection();
  const names = useDatabases();
  const options = [...new Set([connection.database, ...(names ?? [])])].sort().map((name) => ({ id: name, label: name }));
  return (
    <Menu label="Database" value={connection.database}>
      {(close) => (
        <Picker
          label="Databases"
          options={options}
          selected={connection.database}
          placeholder="Find a database"
          empty="No such database."
          onPick={(database) => {
            close();
            if (database !== connection.database) update({ database, tenant: "default", scope: null, view: null, time: null });
          }}
        />
      )}
    </Menu>
  );
}

function TenantMenu() {
  const { connection, update } = useConnection();
  const { names } = useTenants();
  const create = useCreateTenant();
  const [text, setText] = useState("");
  const typed = text.trim();
  const known = [...new Set(["default", connection.tenant, ...(names ?? [])])].sort();
  const isNew = typed !== "" && !known.includes(typed);
  const options = [
    ...known.map((name) => ({ id: name, label: name })),
    // Without a list of tenants the name is opened as it is; with one, a new name is a tenant to be made.
    ...(isNew && names === null ? [{ id: `${OPEN}${typed}`, label: `Open tenant “${typed}”`, always: true }] : []),
    ...(isNew && names !== null && create.isAllowed ? [{ id: `${OPEN}${typed}`, label: `Create tenant “${typed}”`, always: true }] : []),
  ];
  return (
    <Menu label="Tenant" value={connection.tenant}>
      {(close) => (
        <>
          <Picker
            label="Tenants"
            options={options}
            selected={connection.tenant}
            placeholder="Find a user or tenant"
            empty="No such tenant."
            onType={setText}
            onPick={(id) => {
              const open = (tenant: string) => {
                close();
                update({ tenant, scope: null, view: null, time: null });
              };
              if (!id.startsWith(OPEN)) open(id);
              else if (names === null) open(typed);
              else create.mutate(typed, { onSuccess: () => open(typed) });
            }}
          />
          {names === null && <p className="soft">Only an admin can list the tenants: type the whole name.</p>}
          {create.error !== null && <ErrorMessage error={create.error} />}
        </>
      )}
    </Menu>
  );
}

/** Return a mutation that makes a tenant in the database of the connection. */
export function useCreateTenant() {
  const { connection, client } = useConnection();
  const queries = useQueryClient();
  const isAllowed = useWhoAmI().data?.role === "admin";
  const create = useMutation({
    mutationFn: (tenant: string) =>
      dataOf(client.POST("/admin/databases/{name}/tenants", { params: { path: { name: connection.database } } as never, body: { name: tenant } as never, parseAs: "text" })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["tenants"] }),
  });
  return { ...create, isAllowed };
}

function ScopeMenu() {
  const { connection, update } = useConnection();
  const names = useScopes().data ?? [];
  const options = [{ id: OPEN, label: BASE }, ...[...new Set([...names, ...(connection.scope === null ? [] : [connection.scope])])].sort().map((name) => ({ id: name, label: name }))];
  return (
    <Menu label="Scope" value={connection.scope ?? "base"} isSet={connection.scope !== null}>
      {(close) => (
        <Picker
          label="Scopes"
          options={options}
          selected={connection.scope ?? OPEN}
          placeholder="Find a scope"
          empty="No such scope."
          onPick={(id) => {
            close();
            update({ scope: id === OPEN ? null : id });
          }}
        />
      )}
    </Menu>
  );
}

const KINDS: { kind: TimeKind | "now"; title: string; text: string }[] = [
  { kind: "now", title: "Now", text: "What holds now." },
  { kind: "asOf", title: "As of", text: "What was valid then, as far as is known today." },
  { kind: "knownAt", title: "Known at", text: "What the knowledge base held then." },
];

function TimeMenu() {
  const { connection, update } = useConnection();
  const { time } = connection;
  const [kind, setKind] = useState<TimeKind | "now">(time?.kind ?? "now");
  const [at, setAt] = useState(time?.at.slice(0, 16) ?? "");
  const submit = (close: () => void) => (event: FormEvent) => {
    event.preventDefault();
    const date = new Date(`${at}Z`);
    if (kind !== "now" && Number.isNaN(date.getTime())) return;
    close();
    update({ time: kind === "now" ? null : { kind, at: date.toISOString().replace(".000Z", "Z") } });
  };
  return (
    <Menu label="Time" value={time === null ? "now" : timeText(time)} icon="time" isSet={time !== null}>
      {(close) => (
        <form onSubmit={submit(close)} aria-label="Time of all screens">
          {KINDS.map(({ kind: each, title, text }) => (
            <label key={each} className="inline">
              <input type="radio" name="kind" checked={kind === each} onChange={() => setKind(each)} />
              <span><strong>{title}</strong> {text}</span>
            </label>
          ))}
          <div className="fields">
            {kind !== "now" && <label>Instant, in UTC <input type="datetime-local" required value={at} onChange={(event) => setAt(event.target.value)} /></label>}
            <button type="submit" className="primary">Show</button>
          </div>
        </form>
      )}
    </Menu>
  );
}

export function KeyMenu() {
  const { connection, update } = useConnection();
  const status = useAuthStatus();
  const who = useWhoAmI();
  if (status.data === undefined || status.data.mode === "disabled" || connection.key === null) return null;
  return (
    <Menu label="Key" value={who.data?.role ?? "key"} icon="key">
      {() => (
        <>
          {who.data !== undefined && <p>{who.data.name ?? who.data.keyId ?? "This key"}: {who.data.permissions.join(", ")}.</p>}
          <p className="soft">The key stays in this browser tab.</p>
          <button type="button" onClick={() => update({ key: null })}>Forget the key</button>
        </>
      )}
    </Menu>
  );
}

/** Say what differs from the usual: a tenant that does not exist, a view, another time. */
export function Notices({ screenTimes, screen }: { screenTimes: readonly TimeKind[]; screen: string }) {
  const { connection, update } = useConnection();
  const { names, suggestion } = useTenants();
  const create = useCreateTenant();
  const mayWrite = useMayWrite();
  const { time } = connection;
  const isMissing = names !== null && connection.tenant !== "default" && !names.includes(connection.tenant);
  return (
    <>
      {isMissing && (
        <p className="notice warn" role="status">
          <span>Tenant <strong>{connection.tenant}</strong> does not exist in database {connection.database}{mayWrite ? ": the first fact creates it." : "."}</span>
          {suggestion !== null && <button type="button" onClick={() => update({ tenant: suggestion })}>Open {suggestion}</button>}
          {create.isAllowed && <button type="button" disabled={create.isPending} onClick={() => create.mutate(connection.tenant)}>Create it</button>}
        </p>
      )}
      {create.error !== null && <ErrorMessage error={create.error} />}
      {connection.view !== null && (
        <p className="notice" role="status">
          <span>Only what this view admits is shown.</span> <button type="button" onClick={() => update({ view: null })}>Show everything</button>
        </p>
      )}
      {time !== null && (
        <p className={screenTimes.includes(time.kind) ? "notice" : "notice warn"} role="status">
          <span>
            {screenTimes.includes(time.kind)
              ? `${time.kind === "asOf" ? "What was valid" : "What was known"} at ${instantText(time.at)}. Nothing can be changed there.`
              : `${screen} shows the present: it cannot show what was ${time.kind === "asOf" ? "valid" : "known"} at another time.`}
          </span>
          <button type="button" onClick={() => update({ time: null })}>Back to now</button>
        </p>
      )}
    </>
  );
}

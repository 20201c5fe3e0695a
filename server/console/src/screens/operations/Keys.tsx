// API keys: list, create, revoke. Only where the server manages keys.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { dataOf } from "../../api/client";
import { useAuthStatus, useWhoAmI } from "../../api/queries";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";

const ROLES = ["reader", "writer", "admin", "replica"] as const;

export function Keys() {
  const status = useAuthStatus();
  if (status.error !== null) return <ErrorMessage error={status.error} />;
  if (status.data === undefined) return <p role="status">Loading …</p>;
  if (status.data.mode === "disabled") {
    return <p className="soft">Authentication is off: every client may do everything. The setting <code>AUTH_ENABLED=true</code> turns managed keys on.</p>;
  }
  if (status.data.mode === "single") return <p className="soft">The server has one key, from the setting <code>API_KEY</code>. The setting <code>AUTH_ENABLED=true</code> turns managed keys on.</p>;
  return <ManagedKeys />;
}

function ManagedKeys() {
  const { connection, client } = useConnection();
  const keys = useQuery({
    queryKey: ["keys", connection.key],
    queryFn: ({ signal }) => dataOf(client.GET("/auth/keys", { params: {} as never, signal })),
  });
  if (keys.error !== null) return <ErrorMessage error={keys.error} />;
  if (keys.data === undefined) return <p role="status">Loading …</p>;
  return (
    <>
      <div className="scroll" tabIndex={0} role="group" aria-label="List of keys">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th><th scope="col">Key</th><th scope="col">Role</th><th scope="col">Databases</th><th scope="col">Tenants</th><th scope="col">Expires</th><th scope="col">Change</th>
            </tr>
          </thead>
          <tbody>
            {keys.data.map((key) => <KeyRow key={key.id} shown={key as Shown} />)}
          </tbody>
        </table>
      </div>
      <NewKey />
    </>
  );
}

interface Shown {
  id: string;
  name: string;
  prefix: string;
  role: string;
  databases: string[];
  tenants: string[];
  expiresAt: number | null;
  expired: boolean;
}

function KeyRow({ shown }: { shown: Shown }) {
  const { client } = useConnection();
  const queries = useQueryClient();
  const whoami = useWhoAmI();
  const [isAsking, setAsking] = useState(false);
  const revoke = useMutation({
    mutationFn: () => dataOf(client.DELETE("/auth/keys/{id}", { params: { path: { id: shown.id } } as never })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["keys"] }),
  });
  const isOwn = whoami.data?.keyId === shown.id;
  return (
    <tr>
      <th scope="row">{shown.name}{isOwn && <span className="soft"> (this key)</span>}</th>
      <td><code>{shown.prefix}…</code></td>
      <td>{shown.role}</td>
      <td>{shown.databases.join(", ") || "all"}</td>
      <td>{shown.tenants.join(", ") || "all"}</td>
      <td>{shown.expiresAt === null ? "never" : new Date(shown.expiresAt).toLocaleDateString()}{shown.expired && <span className="warning"> expired</span>}</td>
      <td>
        {isAsking ? (
          <span className="confirm" role="group" aria-label={`Revoke ${shown.name}?`}>
            {isOwn ? "This is the key of this page. Revoke it?" : "Clients with this key lose access. Revoke it?"}
            <button type="button" className="danger" autoFocus disabled={revoke.isPending} onClick={() => revoke.mutate()}>Revoke {shown.name}</button>
            <button type="button" onClick={() => setAsking(false)}>Cancel</button>
          </span>
        ) : (
          <button type="button" aria-label={`Revoke ${shown.name} …`} onClick={() => setAsking(true)}>Revoke …</button>
        )}
        {revoke.error !== null && <ErrorMessage error={revoke.error} />}
      </td>
    </tr>
  );
}

function NewKey() {
  const { client } = useConnection();
  const queries = useQueryClient();
  const [isCopied, setCopied] = useState(false);
  const create = useMutation({
    mutationFn: (body: Record<string, unknown>) => dataOf(client.POST("/auth/keys", { body: body as never, params: {} as never })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["keys"] }),
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const fields = new FormData(form);
    const text = (name: string) => String(fields.get(name) ?? "").trim();
    const names = (name: string) => text(name).split(/[\s,]+/).filter((part) => part !== "");
    const body: Record<string, unknown> = { name: text("name"), role: text("role") };
    for (const name of ["databases", "tenants"]) if (names(name).length > 0) body[name] = names(name);
    if (text("days") !== "") body["expiresInDays"] = Number(text("days"));
    setCopied(false);
    create.mutate(body, { onSuccess: () => form.reset() });
  };
  const secret = create.data === undefined ? null : create.data.key;
  return (
    <form className="toolbar new-key" aria-label="New key" onSubmit={submit}>
      <label>Name of the key <input name="name" required maxLength={200} autoComplete="off" /></label>
      <label>Role <select name="role" defaultValue="reader">{ROLES.map((role) => <option key={role}>{role}</option>)}</select></label>
      <label>Databases (empty: all) <input name="databases" spellCheck={false} autoComplete="off" /></label>
      <label>Tenants (empty: all) <input name="tenants" spellCheck={false} autoComplete="off" /></label>
      <label>Expires after days <input name="days" type="number" min="1" max="36500" step="1" /></label>
      <button type="submit" disabled={create.isPending}>Create a key</button>
      {create.error !== null && <ErrorMessage error={create.error} />}
      {secret !== null && (
        <div className="card secret" role="status">
          <p>The new key is shown this once. The server stores a hash only.</p>
          <p>
            <code>{secret}</code>{" "}
            <button type="button" onClick={() => void navigator.clipboard.writeText(secret).then(() => setCopied(true))}>{isCopied ? "Copied" : "Copy the key"}</button>{" "}
            <button type="button" onClick={() => create.reset()}>Hide the key</button>
          </p>
        </div>
      )}
    </form>
  );
}

// Tenant, database and scope of the page, and the key.
import { useEffect, useState } from "react";

import { useAuthStatus, useScopes } from "../api/queries";
import { useConnection } from "../connection";

export function ConnectionBar() {
  const { connection, update } = useConnection();
  const status = useAuthStatus();
  const scopes = useScopes();
  const names = scopes.data ?? [];
  return (
    <form className="connection" onSubmit={(event) => event.preventDefault()} aria-label="Connection">
      <TextField label="Tenant" value={connection.tenant} onChange={(tenant) => update({ tenant, scope: null })} />
      <TextField label="Database" value={connection.database} onChange={(database) => update({ database, scope: null })} />
      <label>
        Scope
        <select value={connection.scope ?? ""} onChange={(event) => update({ scope: event.target.value === "" ? null : event.target.value })}>
          <option value="">base</option>
          {connection.scope !== null && !names.includes(connection.scope) && <option>{connection.scope}</option>}
          {names.map((name) => <option key={name}>{name}</option>)}
        </select>
      </label>
      {status.data !== undefined && status.data.mode !== "disabled" && connection.key !== null && (
        <button type="button" onClick={() => update({ key: null })}>Forget the key</button>
      )}
    </form>
  );
}

/** A field whose change takes effect on Enter or when it loses the focus. */
function TextField({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const [draft, setDraft] = useState(value);
  useEffect(() => setDraft(value), [value]);
  const finish = () => {
    const next = draft.trim() === "" ? "default" : draft.trim();
    setDraft(next);
    if (next !== value) onChange(next);
  };
  return (
    <label>
      {label}
      <input value={draft} onChange={(event) => setDraft(event.target.value)} onBlur={finish} onKeyDown={(event) => event.key === "Enter" && finish()} spellCheck={false} autoComplete="off" />
    </label>
  );
}

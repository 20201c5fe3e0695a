// Databases and the tenants of one of them.
import { useQueries, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo, useAddress } from "../../address";
import { clientOf, dataOf } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";

/** Tenants whose size is read, each with a request. */
const MAX_TENANTS = 30;

export function Databases() {
  const { connection, client } = useConnection();
  const [selected, setSelected] = useAddress("of");
  const database = selected ?? connection.database;
  const databases = useQuery({
    queryKey: ["databases", connection.key],
    queryFn: ({ signal }) => dataOf(client.GET("/admin/databases", { params: {} as never, signal })),
  });
  if (databases.error !== null) return <><ErrorMessage error={databases.error} /><Tenants database={database} /></>;
  if (databases.data === undefined) return <p role="status">Loading …</p>;
  return (
    <>
      <div className="scroll" tabIndex={0} role="group" aria-label="List of databases">
        <table>
          <thead>
            <tr><th scope="col">Database</th><th scope="col" className="number">Tenants</th><th scope="col" className="number">Facts</th><th scope="col">Created</th></tr>
          </thead>
          <tbody>
            {databases.data.map(({ name, tenants, facts, createdAt }) => (
              <tr key={name}>
                <th scope="row"><button type="button" aria-pressed={name === database} onClick={() => setSelected(name)}>{name}</button></th>
                <td className="number">{tenants.toLocaleString("en")}</td>
                <td className="number">{facts.toLocaleString("en")}</td>
                <td>{createdAt === null || createdAt === 0 ? "–" : new Date(createdAt).toLocaleDateString()}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Tenants database={database} />
    </>
  );
}

function Tenants({ database }: { database: string }) {
  const { connection, client } = useConnection();
  const [search] = useSearchParams();
  const [filter, setFilter] = useState("");
  const tenants = useQuery({
    queryKey: ["tenants", connection.key, database],
    queryFn: ({ signal }) => dataOf(client.GET("/admin/databases/{name}/tenants", { params: { path: { name: database } } as never, signal })),
  });
  const matching = (tenants.data ?? []).filter((name) => name.includes(filter.trim()));
  const listed = matching.slice(0, MAX_TENANTS);
  const sizes = useQueries({
    queries: listed.map((tenant) => ({
      queryKey: ["tenant size", connection.key, database, tenant],
      staleTime: 60_000,
      queryFn: async ({ signal }: { signal: AbortSignal }) => {
        const client = clientOf({ ...connection, database, tenant, scope: null, view: null, time: null });
        const { predicates } = await dataOf(client.GET("/predicates", { params: { query: { scope: "*" } } as never, signal }));
        return predicates.reduce((sum, { factCount }) => sum + factCount, 0);
      },
    })),
  });
  if (tenants.error !== null) return <ErrorMessage error={tenants.error} />;
  if (tenants.data === undefined) return <p role="status">Loading …</p>;
  const rows = listed.map((tenant, index) => ({ tenant, facts: sizes[index]?.data })).sort((left, right) => (right.facts ?? -1) - (left.facts ?? -1));
  const most = Math.max(1, ...rows.map(({ facts }) => facts ?? 0));
  const address = (tenant: string) => {
    const target = new URLSearchParams(search);
    target.delete("scope");
    target.set("tenant", tenant);
    if (database === "default") target.delete("database");
    else target.set("database", database);
    return linkTo("playground", target);
  };
  return (
    <>
      <p className="toolbar">
        <label className="inline">Filter tenants of {database} <input value={filter} onChange={(event) => setFilter(event.target.value)} spellCheck={false} autoComplete="off" /></label>
        <span className="soft" role="status">
          {matching.length > MAX_TENANTS ? `first ${MAX_TENANTS} of ${matching.length.toLocaleString("en")}` : matching.length.toLocaleString("en")} {matching.length === 1 ? "tenant" : "tenants"}, by size
        </span>
      </p>
      {rows.length > 0 && (
        <div className="scroll" tabIndex={0} role="group" aria-label="List of tenants">
          <table>
            <thead><tr><th scope="col">Tenant</th><th scope="col">Facts</th></tr></thead>
            <tbody>
              {rows.map(({ tenant, facts }) => (
                <tr key={tenant}>
                  <th scope="row"><Link href={address(tenant)}>{tenant}</Link></th>
                  <td className="size">{facts !== undefined && <><span className="bar" style={{ width: `${(facts / most) * 60}%` }} />{facts.toLocaleString("en")}</>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

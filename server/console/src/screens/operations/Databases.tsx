// Databases and the tenants of one of them.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo, useAddress } from "../../address";
import { dataOf } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";

const MAX_TENANTS = 200;

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
  if (tenants.error !== null) return <ErrorMessage error={tenants.error} />;
  if (tenants.data === undefined) return <p role="status">Loading …</p>;
  const matching = tenants.data.filter((name) => name.includes(filter.trim()));
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
          {matching.length > MAX_TENANTS ? `first ${MAX_TENANTS} of ${matching.length.toLocaleString("en")}` : matching.length.toLocaleString("en")} {matching.length === 1 ? "tenant" : "tenants"}
        </span>
      </p>
      <p>{matching.slice(0, MAX_TENANTS).map((name) => <Link key={name} className="chip" href={address(name)}>{name}</Link>)}</p>
    </>
  );
}

// The kept versions of a rule set, and the rollback to one of them.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { useAddressParts } from "../../address";
import { dataOf } from "../../api/client";
import { useMayWrite } from "../../api/queries";
import { Dialog } from "../../components/Dialog";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { DifferenceTable } from "./DifferenceTable";
import { timeText, useDifference, type RuleSet, type Version } from "./requests";

interface Properties {
  set: RuleSet;
  versions: readonly Version[];
  onMessage: (message: string) => void;
}

export function Versions({ set, versions, onMessage }: Properties) {
  const [, change] = useAddressParts();
  const mayWrite = useMayWrite();
  const [target, setTarget] = useState<number | null>(null);
  return (
    <>
      <div className="scroll version-list" tabIndex={0} role="region" aria-label="Versions">
        <table>
          <thead>
            <tr>
              <th scope="col">Version</th><th scope="col">Deployed</th><th scope="col">By</th><th scope="col">Message</th><th scope="col">Revision</th>
              <th scope="col" className="number">Added</th><th scope="col" className="number">Changed</th><th scope="col" className="number">Removed</th><th scope="col">Actions</th>
            </tr>
          </thead>
          <tbody>
            {versions.map((version) => (
              <tr key={version.version}>
                <th scope="row" data-label="Version">{version.version}</th>
                <td data-label="Deployed"><time dateTime={new Date(version.deployedAt).toISOString()}>{timeText(version.deployedAt)}</time></td>
                <td data-label="By">{version.key ?? <span className="soft">no key</span>}</td>
                <td data-label="Message">{[version.message, version.rolledBackTo !== null && `rolled back to version ${version.rolledBackTo}`].filter(Boolean).join("; ")}</td>
                <td data-label="Revision">{version.revision !== null && <code title={version.revision}>{version.revision.slice(0, 12)}</code>}</td>
                <td className="number" data-label="Added">{version.added}</td>
                <td className="number" data-label="Changed">{version.changed}</td>
                <td className="number" data-label="Removed">{version.removed}</td>
                <td>
                  <span className="actions">
                    <button
                      type="button"
                      aria-label={`Compare version ${version.version} with the version before`}
                      onClick={() => change({ view: "compare", from: String(version.version - 1), to: String(version.version) }, { replace: false })}
                    >
                      Compare
                    </button>
                    {mayWrite && version.version !== set.version && (
                      <button type="button" className="danger" aria-label={`Roll back to version ${version.version}`} onClick={() => setTarget(version.version)}>Roll back</button>
                    )}
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {target !== null && (
        <RollbackDialog
          set={set}
          target={target}
          onClose={(message) => {
            setTarget(null);
            if (message !== null) onMessage(message);
          }}
        />
      )}
    </>
  );
}

function RollbackDialog({ set, target, onClose }: { set: RuleSet; target: number; onClose: (message: string | null) => void }) {
  const { client } = useConnection();
  const queries = useQueryClient();
  // The set of the time when the dialog opened: a version that is deployed while it is open is not overwritten.
  const [shown] = useState(set);
  const difference = useDifference(shown, shown.version, target);
  const rollback = useMutation({
    mutationFn: () => {
      const body = { version: target, scope: shown.scope, expectedVersion: shown.version };
      return dataOf(client.POST("/rulesets/{name}/rollback", { params: { path: { name: shown.name } } as never, body: body as never }));
    },
    onSuccess: async ({ version }) => {
      onClose(version === shown.version ? `Version ${target} of ${shown.name} has the same contents; nothing was changed.` : `Rolled ${shown.name} back to version ${target}, as version ${version}.`);
      await queries.invalidateQueries();
    },
  });
  return (
    <Dialog title={`Roll ${shown.name} back to version ${target}`} onClose={() => onClose(null)}>
      <p>The contents of version {target} are deployed as version {shown.version + 1}. All readers see the change at once.</p>
      {difference.error !== null && <ErrorMessage error={difference.error} />}
      {difference.data === undefined ? difference.error === null && <p role="status">Comparing …</p> : (
        <DifferenceTable difference={difference.data} before={`Now: version ${shown.version}`} after={`Then: version ${target}`} />
      )}
      {rollback.error !== null && <ErrorMessage error={rollback.error} />}
      <p className="toolbar">
        <button type="button" className="danger" onClick={() => rollback.mutate()} disabled={difference.data === undefined || rollback.isPending}>Roll back</button>
        <button type="button" onClick={() => onClose(null)} data-focused>Cancel</button>
      </p>
    </Dialog>
  );
}

// The alerts that fire on this node, each with what the runbook says about it.
import { Fragment, lazy, Suspense } from "react";

import { useAddress } from "../../address";
import { firing } from "./alerts";
import type { Reading } from "./readings";

const RunbookDialog = lazy(() => import("./RunbookDialog"));

export function Alerts({ readings }: { readings: readonly Reading[] }) {
  const [name, setName] = useAddress("runbook");
  const alerts = firing(readings);
  return (
    <>
      {readings.length > 0 && alerts.length === 0 && <p role="status"><span className="kind mark-pass">none</span> No alert fires on this node.</p>}
      {alerts.length > 0 && (
        <ul className="alerts" aria-label="Alerts that fire">
          {alerts.map(({ alert, text }) => (
            <li key={alert.name} className="card">
              <span className={alert.severity === "page" ? "kind mark-fail" : "kind mark-warn"}>{alert.severity === "page" ? "act now" : "warning"}</span>
              <span><strong>{alert.name}</strong> {text}</span>
              <button type="button" aria-label={`What to do about ${alert.name}`} onClick={() => setName(alert.name, { replace: false })}>What to do</button>
            </li>
          ))}
        </ul>
      )}
      {name !== null && <Suspense fallback={<Fragment />}><RunbookDialog name={name} onClose={() => setName(null)} /></Suspense>}
    </>
  );
}

// What the page looks through: a lowest level, and groups. A tenant without labels has no menu.
import { useDimensions } from "../api/queries";
import type { Schemas } from "../api/client";
import { useConnection } from "../connection";
import { changed, labelsText, viewOf, type Value } from "../view";
import { Menu } from "./Menu";

export function ViewMenu() {
  const { connection, update } = useConnection();
  const dimensions = useDimensions().data ?? [];
  const view = viewOf(connection.view);
  const change = (name: string, value: Value | undefined) => update({ view: changed(view, name, value) });
  if (dimensions.length === 0) return null;
  return (
    <Menu label="View" value={labelsText(view) || "all"} icon="view" isSet={connection.view !== null}>
      {() => (
        <div className="fields">
          {dimensions.map((dimension) =>
            dimension.ordered ? (
              <LevelMenu key={dimension.name} dimension={dimension} value={view[dimension.name]} onChange={(value) => change(dimension.name, value)} />
            ) : (
              <GroupMenu key={dimension.name} dimension={dimension} value={view[dimension.name]} onChange={(value) => change(dimension.name, value)} />
            ),
          )}
        </div>
      )}
    </Menu>
  );
}

interface Properties {
  dimension: Schemas["StoredDimension"];
  value: Value | undefined;
  onChange: (value: Value | undefined) => void;
}

function LevelMenu({ dimension, value, onChange }: Properties) {
  const [lowest, ...higher] = dimension.values;
  return (
    <label>
      View: {dimension.name}
      <select value={typeof value === "string" ? value : ""} onChange={(event) => onChange(event.target.value === "" ? undefined : event.target.value)}>
        <option value="">{lowest} or higher: all</option>
        {higher.map((level, index) => <option key={level} value={level}>{index + 1 < higher.length ? `${level} or higher` : `${level} only`}</option>)}
      </select>
    </label>
  );
}

function GroupMenu({ dimension, value, onChange }: Properties) {
  const chosen = value === undefined || typeof value === "string" ? [] : value;
  const choose = (group: string, isIn: boolean) => {
    const next = dimension.values.filter((each) => (each === group ? isIn : chosen.includes(each)));
    onChange(next.length === 0 ? undefined : next);
  };
  return (
    <fieldset className="groups">
      <legend>View: {dimension.name}</legend>
      {dimension.values.map((group) => (
        <label key={group}>
          <input type="checkbox" checked={chosen.includes(group)} onChange={(event) => choose(group, event.target.checked)} /> {group}
        </label>
      ))}
    </fieldset>
  );
}

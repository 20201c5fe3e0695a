// A search field above a list of options: arrows move, Enter picks. Menus and the command palette are made of it.
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent } from "react";

import { matching } from "../matching";

export interface Option {
  id: string;
  label: string;
  /** A text beside the label, such as a number of facts. */
  hint?: string | undefined;
  /** Options of one group are below its name. */
  group?: string | undefined;
  /** Show the option for every text that is typed. */
  always?: boolean;
}

interface Properties {
  label: string;
  options: readonly Option[];
  selected?: string | null;
  placeholder?: string;
  /** What to say when no option matches. */
  empty?: string;
  onPick: (id: string) => void;
  /** Called with what is typed, for options that depend on it. */
  onType?: (text: string) => void;
}

const MAX_SHOWN = 80;

export function Picker({ label, options, selected = null, placeholder = "Search", empty = "No match.", onPick, onType }: Properties) {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const prefix = useId();
  const found = useMemo(() => {
    const rest = matching(options.filter(({ always }) => always !== true), text, ({ label }) => label);
    return [...rest.slice(0, MAX_SHOWN), ...options.filter(({ always }) => always === true)];
  }, [options, text]);
  const index = Math.min(active, found.length - 1);
  useEffect(() => {
    list.current?.querySelector(".active")?.scrollIntoView({ block: "nearest" });
  }, [index]);
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + 10, PageUp: index - 10 };
    const target = steps[event.key];
    if (target !== undefined) {
      event.preventDefault();
      setActive(Math.min(found.length - 1, Math.max(0, target)));
    } else if (event.key === "Enter") {
      event.preventDefault();
      const option = found[index];
      if (option !== undefined) onPick(option.id);
    }
  };
  return (
    <div className="picker">
      <input
        role="combobox"
        aria-label={label}
        aria-expanded="true"
        aria-controls={`${prefix}-list`}
        aria-autocomplete="list"
        aria-activedescendant={index >= 0 ? `${prefix}-${index}` : undefined}
        value={text}
        placeholder={placeholder}
        spellCheck={false}
        autoComplete="off"
        data-focused
        autoFocus
        onChange={(event) => {
          setText(event.target.value);
          setActive(0);
          onType?.(event.target.value);
        }}
        onKeyDown={move}
      />
      <ul className="options" role="listbox" id={`${prefix}-list`} aria-label={label} ref={list}>
        {found.map(({ id, label: name, hint, group }, position) => (
          <OptionLine key={id} group={group !== undefined && group !== found[position - 1]?.group ? group : null}>
            <li
              id={`${prefix}-${position}`}
              role="option"
              aria-selected={id === selected}
              className={position === index ? "active" : undefined}
              onMouseMove={() => setActive(position)}
              onClick={() => onPick(id)}
            >
              <span className="label">{name}</span>
              {hint !== undefined && <span className="hint">{hint}</span>}
            </li>
          </OptionLine>
        ))}
      </ul>
      {found.length === 0 && <p className="empty" role="status">{empty}</p>}
    </div>
  );
}

function OptionLine({ group, children }: { group: string | null; children: React.ReactNode }) {
  return <>{group !== null && <li className="group" role="presentation">{group}</li>}{children}</>;
}

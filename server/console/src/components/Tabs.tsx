// Tabs with the keyboard behaviour of the ARIA authoring practices: arrows, Home and End.
import { useId, type KeyboardEvent, type ReactNode } from "react";

interface Tab {
  id: string;
  title: string;
  content: () => ReactNode;
}

export function Tabs({ label, tabs, selected, onSelect }: { label: string; tabs: Tab[]; selected: string; onSelect: (id: string) => void }) {
  const prefix = useId();
  const index = Math.max(0, tabs.findIndex((tab) => tab.id === selected));
  const current = tabs[index];
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: tabs.length - 1 };
    const target = steps[event.key];
    if (target === undefined) return;
    event.preventDefault();
    const tab = tabs[(target + tabs.length) % tabs.length];
    if (tab === undefined) return;
    onSelect(tab.id);
    document.getElementById(`${prefix}-${tab.id}`)?.focus();
  };
  return (
    <div className="tabs">
      <div role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            id={`${prefix}-${tab.id}`}
            type="button"
            role="tab"
            aria-selected={tab === current}
            aria-controls={`${prefix}-panel`}
            tabIndex={tab === current ? 0 : -1}
            onClick={() => onSelect(tab.id)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${prefix}-panel`} aria-labelledby={`${prefix}-${current?.id ?? ""}`} tabIndex={0}>
        {current?.content()}
      </div>
    </div>
  );
}

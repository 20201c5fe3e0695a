// A proof as a collapsible outline: an ARIA tree that renders only the lines in view.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState, type KeyboardEvent } from "react";

import { KIND_NAMES, nodeText, outlineLines, type OutlineLine, type ProofGraphData } from "../proof";

const LINE_HEIGHT_PX = 30;
const MAX_EXPANDED = 5000;

export function ProofOutline({ graph }: { graph: ProofGraphData }) {
  const [expanded, setExpanded] = useState<ReadonlySet<string>>(() => firstLevels(graph, 3));
  const [active, setActive] = useState(0);
  const lines = useMemo(() => outlineLines(graph, expanded), [graph, expanded]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => scroller.current, estimateSize: () => LINE_HEIGHT_PX, overscan: 12 });

  const change = (line: OutlineLine, open: boolean) => {
    const next = new Set(expanded);
    if (open) next.add(line.path);
    else next.delete(line.path);
    setExpanded(next);
  };
  const focusLine = (index: number) => {
    const target = Math.min(lines.length - 1, Math.max(0, index));
    setActive(target);
    virtual.scrollToIndex(target);
  };
  const key = (event: KeyboardEvent) => {
    const line = lines[active];
    if (line === undefined) return;
    switch (event.key) {
      case "ArrowDown": focusLine(active + 1); break;
      case "ArrowUp": focusLine(active - 1); break;
      case "Home": focusLine(0); break;
      case "End": focusLine(lines.length - 1); break;
      case "ArrowRight":
        if (line.expandable && !line.expanded) change(line, true);
        else if (line.expanded) focusLine(active + 1);
        break;
      case "ArrowLeft":
        if (line.expanded) change(line, false);
        else {
          let parent = active - 1;
          while (parent > 0 && (lines[parent]?.level ?? 0) >= line.level) parent--;
          focusLine(parent);
        }
        break;
      case "Enter":
      case " ":
        if (line.expandable) change(line, !line.expanded);
        break;
      default: return;
    }
    event.preventDefault();
  };
  return (
    <div className="proof">
      <p className="toolbar">
        <button type="button" onClick={() => setExpanded(firstLevels(graph, Infinity))}>Expand all</button>
        <button type="button" onClick={() => setExpanded(new Set())}>Collapse all</button>
        <span className="soft">
          {Object.keys(graph.nodes).length} nodes{graph.truncated && ", cut off at the limit of nodes"}
        </span>
      </p>
      <div role="tree" aria-label="Proof" className="outline" ref={scroller} tabIndex={0} onKeyDown={key} aria-activedescendant={`proof-line-${active}`}>
        <div role="none" style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            const node = line === undefined ? undefined : graph.nodes[line.name];
            if (line === undefined || node === undefined) return null;
            return (
              <div
                key={line.path}
                id={`proof-line-${item.index}`}
                role="treeitem"
                aria-level={line.level + 1}
                aria-selected={item.index === active}
                {...(line.expandable ? { "aria-expanded": line.expanded } : {})}
                className={item.index === active ? "active" : undefined}
                style={{ transform: `translateY(${item.start}px)`, paddingLeft: `${0.5 + Math.min(line.level, 40) * 1.25}rem` }}
                onClick={() => {
                  setActive(item.index);
                  if (line.expandable) change(line, !line.expanded);
                }}
              >
                <span className="twist" aria-hidden="true">{line.expandable ? (line.expanded ? "▾" : "▸") : "·"}</span>
                <code>{nodeText(node)}</code>
                <span className={`kind ${node.kind}`}>{KIND_NAMES[node.kind] ?? node.kind}</span>
                {node.rule != null && <code className="soft rule">{node.rule.text}</code>}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** Return the paths of the lines of the first levels, at most `MAX_EXPANDED`: a shared node has a line under each conclusion. */
function firstLevels(graph: ProofGraphData, levels: number): ReadonlySet<string> {
  const paths = new Set<string>();
  let level: { path: string; name: string }[] = [{ path: graph.root, name: graph.root }];
  for (let depth = 0; depth < levels && level.length > 0 && paths.size < MAX_EXPANDED; depth++) {
    const next: typeof level = [];
    for (const { path, name } of level) {
      const premises = graph.nodes[name]?.premises ?? [];
      if (premises.length === 0 || paths.size >= MAX_EXPANDED) continue;
      paths.add(path);
      for (const premise of premises) next.push({ path: `${path}/${premise}`, name: premise });
    }
    level = next;
  }
  return paths;
}

// A proof as a drawing: conclusions above their premises. Large proofs start with their first nodes;
// a node with a plus sign opens on click or Enter.
import dagre from "@dagrejs/dagre";
import { useMemo, useState } from "react";

import { KIND_NAMES, nodeText, visibleNodes, type ProofGraphData } from "../proof";

const FIRST_NODES = 60;
const MORE_NODES = 60;
const CHARACTER_WIDTH_PX = 7.3;
const MAX_CHARACTERS = 42;

interface Drawn {
  name: string;
  text: string;
  x: number;
  y: number;
  width: number;
  height: number;
  hidden: number;
}

export default function ProofDrawing({ graph }: { graph: ProofGraphData }) {
  const [limit, setLimit] = useState(FIRST_NODES);
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(new Set());
  const { nodes, edges, width, height } = useMemo(() => layout(graph, visibleNodes(graph, collapsed, limit)), [graph, collapsed, limit]);
  const total = Object.keys(graph.nodes).length;
  const toggle = (name: string) => {
    const next = new Set(collapsed);
    if (!next.delete(name)) next.add(name);
    setCollapsed(next);
  };
  return (
    <div className="drawing">
      <p className="toolbar">
        <span className="soft">{nodes.length} of {total} nodes</span>
        {nodes.length < total && limit < total && (
          <button type="button" onClick={() => setLimit(limit + MORE_NODES)}>Show more</button>
        )}
        {collapsed.size > 0 && <button type="button" onClick={() => setCollapsed(new Set())}>Open all</button>}
      </p>
      <div className="canvas" tabIndex={0} role="group" aria-label="Drawing of the proof">
        <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
          {edges.map(({ from, to, points }) => (
            <path key={`${from}>${to}`} className="edge" d={`M${points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L")}`} />
          ))}
          {nodes.map((node) => {
            const data = graph.nodes[node.name];
            if (data === undefined) return null;
            const closed = collapsed.has(node.name);
            return (
              <g
                key={node.name}
                className={`node ${data.kind}`}
                transform={`translate(${node.x - node.width / 2},${node.y - node.height / 2})`}
                {...(data.premises.length > 0
                  ? {
                      role: "button",
                      tabIndex: 0,
                      "aria-expanded": !closed,
                      onClick: () => toggle(node.name),
                      onKeyDown: (event) => {
                        if (event.key !== "Enter" && event.key !== " ") return;
                        event.preventDefault();
                        toggle(node.name);
                      },
                    }
                  : { role: "img" })}
                aria-label={`${nodeText(data)}: ${KIND_NAMES[data.kind] ?? data.kind}`}
              >
                <title>{data.rule == null ? nodeText(data) : `${nodeText(data)}\n${data.rule.text}`}</title>
                <rect width={node.width} height={node.height} rx="6" />
                <text x={node.width / 2} y={node.height / 2} dominantBaseline="central" textAnchor="middle">
                  {node.text}
                  {node.hidden > 0 && ` +${node.hidden}`}
                </text>
              </g>
            );
          })}
        </svg>
      </div>
    </div>
  );
}

function layout(graph: ProofGraphData, names: string[]) {
  const drawing = new dagre.graphlib.Graph();
  drawing.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 34, marginx: 12, marginy: 12 });
  drawing.setDefaultEdgeLabel(() => ({}));
  const shown = new Set(names);
  const drawn = new Map<string, Drawn>();
  for (const name of names) {
    const node = graph.nodes[name];
    if (node === undefined) continue;
    const full = nodeText(node);
    const text = full.length > MAX_CHARACTERS ? `${full.slice(0, MAX_CHARACTERS - 1)}…` : full;
    const hidden = node.premises.filter((premise) => !shown.has(premise)).length;
    const characters = text.length + (hidden > 0 ? 2 + String(hidden).length : 0);
    const size = { width: characters * CHARACTER_WIDTH_PX + 20, height: 30 };
    drawn.set(name, { name, text, hidden, x: 0, y: 0, ...size });
    drawing.setNode(name, size);
  }
  for (const name of names) {
    for (const premise of graph.nodes[name]?.premises ?? []) if (shown.has(premise)) drawing.setEdge(name, premise);
  }
  dagre.layout(drawing);
  const nodes = [...drawn.values()].map((node) => {
    const { x, y } = drawing.node(node.name);
    return { ...node, x, y };
  });
  const edges = drawing.edges().map((edge) => ({ from: edge.v, to: edge.w, points: drawing.edge(edge).points as { x: number; y: number }[] }));
  const { width = 0, height = 0 } = drawing.graph();
  return { nodes, edges, width, height };
}

// The drawing of a neighbourhood, in the sizes of the page: what does not fit is reached by scrolling.
import { useLayoutEffect, useMemo, useRef } from "react";

import type { Box, Drawing, Line } from "../neighbourhood";

interface Properties {
  drawing: Drawing;
  center: string;
  expanded: ReadonlySet<string>;
  /** The CSS variable with the colour of a predicate. */
  colorOf: (predicate: string) => string;
  onToggle: (constant: string) => void;
}

const MARGIN = 16;
/** The drawing shrinks to the width of the page, as long as its texts can be read. */
const MIN_SCALE = 0.65;
const ARROW = 7;

export function GraphDrawing({ drawing: { boxes, lines }, center, expanded, colorOf, onToggle }: Properties) {
  const scroller = useRef<HTMLDivElement>(null);
  const { left, top, width, height } = useMemo(() => boundsOf(boxes), [boxes]);
  const middle = boxes.find(({ constant }) => constant === center);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null || middle === undefined) return;
    const scale = (element.firstElementChild?.clientWidth ?? width) / width;
    element.scrollLeft = (middle.x - left) * scale - element.clientWidth / 2;
    element.scrollTop = (middle.y - top) * scale - element.clientHeight / 2;
  }, [middle, left, top, width]);
  return (
    <div className="graph-drawing" ref={scroller} tabIndex={0} role="region" aria-label="Drawing">
      <svg style={{ width: `clamp(${Math.round(width * MIN_SCALE)}px, 100%, ${Math.round(width)}px)` }} viewBox={`${left} ${top} ${width} ${height}`} role="img" aria-label={`${boxes.filter(({ constant }) => constant !== null).length} constants and the facts between them; the list has the same facts`}>
        {lines.map((line) => <LineOf key={line.id} line={line} color={colorOf(line.predicate)} />)}
        {boxes.map((box) => {
          const { constant } = box;
          const color = box.predicate === null ? undefined : { fill: `var(${colorOf(box.predicate)})` };
          const kind = constant === null ? "fact-box" : constant === center ? "constant center" : expanded.has(constant) ? "constant expanded" : "constant";
          return (
            <g key={box.id} className={kind} transform={`translate(${box.x} ${box.y})`} onClick={() => constant !== null && onToggle(constant)}>
              <title>{constant ?? box.predicate}</title>
              <rect x={-box.width / 2} y={-box.height / 2} width={box.width} height={box.height} rx={box.height / 2} />
              <text style={color} textAnchor="middle" dominantBaseline="central">{box.label}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

function LineOf({ line: { from, to, hasArrow }, color }: { line: Line; color: string }) {
  const start = edgeOf(from, to);
  const end = edgeOf(to, from);
  const angle = Math.atan2(end.y - start.y, end.x - start.x);
  const wing = (side: number) => `${end.x - ARROW * Math.cos(angle + side)},${end.y - ARROW * Math.sin(angle + side)}`;
  return (
    <g style={{ stroke: `var(${color})`, fill: `var(${color})` }} className="edge">
      <line x1={start.x} y1={start.y} x2={end.x} y2={end.y} />
      {hasArrow && <polygon points={`${end.x},${end.y} ${wing(0.45)} ${wing(-0.45)}`} />}
    </g>
  );
}

/** Return where a line from the centre of a box to another box leaves it. */
function edgeOf(box: Box, other: Box): { x: number; y: number } {
  const [dx, dy] = [other.x - box.x, other.y - box.y];
  const share = Math.min(dx === 0 ? Infinity : box.width / 2 / Math.abs(dx), dy === 0 ? Infinity : box.height / 2 / Math.abs(dy), 1);
  return { x: box.x + dx * share, y: box.y + dy * share };
}

function boundsOf(boxes: readonly Box[]): { left: number; top: number; width: number; height: number } {
  const left = Math.min(...boxes.map(({ x, width }) => x - width / 2)) - MARGIN;
  const right = Math.max(...boxes.map(({ x, width }) => x + width / 2)) + MARGIN;
  const top = Math.min(...boxes.map(({ y, height }) => y - height / 2)) - MARGIN;
  const bottom = Math.max(...boxes.map(({ y, height }) => y + height / 2)) + MARGIN;
  return { left, top, width: right - left, height: bottom - top };
}

// The facts around some constants as a drawing: constants and facts are boxes, and a fact has a line to each argument.
import { forceLink, forceManyBody, forceSimulation, forceX, forceY, type SimulationNodeDatum } from "d3-force";

export interface Fact {
  predicate: string;
  args: string[];
  negated: boolean;
  scope?: string | null;
}

export interface Box {
  id: string;
  label: string;
  /** The constant of the box; null for the box of a fact. */
  constant: string | null;
  predicate: string | null;
  /** The centre, and the size, in pixels. */
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Line {
  id: string;
  from: Box;
  to: Box;
  predicate: string;
  /** The line ends at the second argument of a fact with two. */
  hasArrow: boolean;
}

export interface Drawing {
  boxes: Box[];
  lines: Line[];
}

const MAX_LABEL_CHARS = 26;
const CONSTANT = { height: 28, characterWidth: 7.6, padding: 22 };
const FACT = { height: 18, characterWidth: 6.3, padding: 8 };
const GAP = 7;
const TICKS = 260;
const TICKS_OF_MANY = 120;
const MANY_BOXES = 150;
/** Passes that move boxes apart before all positions are spread. */
const MAX_PASSES = 40;
const MAX_SPREADS = 30;
const SPREAD = 1.12;

/** Return the facts without repetition, in the order in which they first occur. */
export function distinct(facts: readonly Fact[]): Fact[] {
  return [...new Map(facts.map((fact) => [keyOf(fact), fact])).values()];
}

/** Return the drawing of facts around a constant, without boxes that overlap. `aspect` is its width by its height. */
export function drawingOf(facts: readonly Fact[], center: string, aspect: number): Drawing {
  const boxes = new Map<string, Box>();
  const lines: Line[] = [];
  const boxOf = (constant: string): Box => {
    const id = `c${constant}`;
    const known = boxes.get(id);
    if (known !== undefined) return known;
    const box = sized({ id, label: shortened(constant), constant, predicate: null }, CONSTANT);
    boxes.set(id, box);
    return box;
  };
  boxOf(center);
  for (const fact of facts) {
    const key = keyOf(fact);
    const { predicate } = fact;
    const label = `${fact.negated ? "not " : ""}${predicate.replace(/[_-]+/g, " ")}`;
    const middle = sized({ id: `f${key}`, label: shortened(label), constant: null, predicate }, FACT);
    boxes.set(middle.id, middle);
    fact.args.map(boxOf).forEach((box, index) => {
      const isFirst = index === 0 && fact.args.length === 2;
      lines.push({ id: `${index}${key}`, from: isFirst ? box : middle, to: isFirst ? middle : box, predicate, hasArrow: fact.args.length === 2 && index === 1 });
    });
  }
  const all = [...boxes.values()];
  arrange(all, lines, aspect);
  return { boxes: all, lines };
}

/** Place boxes by forces, then move those that overlap apart. The result depends on the boxes and lines alone. */
function arrange(boxes: Box[], lines: readonly Line[], aspect: number): void {
  const places = boxes.map((): SimulationNodeDatum => ({}));
  const indices = new Map(boxes.map((box, index) => [box, index]));
  const links = lines.map(({ from, to }) => ({ source: indices.get(from) ?? 0, target: indices.get(to) ?? 0 }));
  const pull = 0.07;
  const simulation = forceSimulation(places)
    .force("charge", forceManyBody().strength(-190).distanceMax(420))
    .force("link", forceLink(links).distance(52).strength(0.7))
    .force("x", forceX(0).strength(pull / Math.sqrt(aspect)))
    .force("y", forceY(0).strength(pull * Math.sqrt(aspect)))
    .stop();
  simulation.tick(boxes.length > MANY_BOXES ? TICKS_OF_MANY : TICKS);
  places.forEach(({ x = 0, y = 0 }, index) => {
    const box = boxes[index];
    if (box !== undefined) [box.x, box.y] = [x * Math.sqrt(aspect), y / Math.sqrt(aspect) + y * 0.25];
  });
  const ordered = [...boxes];
  for (let spread = 0; spread < MAX_SPREADS; spread += 1) {
    for (let pass = 0; pass < MAX_PASSES; pass += 1) if (!separate(ordered)) return;
    for (const box of boxes) [box.x, box.y] = [box.x * SPREAD, box.y * SPREAD];
  }
}

/** Move each two boxes that overlap apart along the shorter way; return true if any did. Sorts the boxes by their left sides. */
function separate(boxes: Box[]): boolean {
  const leftOf = ({ x, width }: Box) => x - width / 2;
  boxes.sort((first, second) => leftOf(first) - leftOf(second));
  let hasMoved = false;
  for (let index = 0; index < boxes.length; index += 1) {
    const first = boxes[index] as Box;
    for (let other = index + 1; other < boxes.length; other += 1) {
      const second = boxes[other] as Box;
      if (leftOf(second) > first.x + first.width / 2 + GAP) break;
      const overlapX = (first.width + second.width) / 2 + GAP - Math.abs(first.x - second.x);
      const overlapY = (first.height + second.height) / 2 + GAP - Math.abs(first.y - second.y);
      if (overlapX <= 0.01 || overlapY <= 0.01) continue;
      hasMoved = true;
      if (overlapX < overlapY) {
        const step = (overlapX / 2) * (first.x <= second.x ? 1 : -1);
        first.x -= step;
        second.x += step;
      } else {
        const step = (overlapY / 2) * (first.y <= second.y ? 1 : -1);
        first.y -= step;
        second.y += step;
      }
    }
  }
  return hasMoved;
}

function sized(part: Pick<Box, "id" | "label" | "constant" | "predicate">, { height, characterWidth, padding }: typeof CONSTANT): Box {
  return { ...part, x: 0, y: 0, width: [...part.label].length * characterWidth + padding, height };
}

function shortened(text: string): string {
  const characters = [...text];
  return characters.length <= MAX_LABEL_CHARS ? text : `${characters.slice(0, MAX_LABEL_CHARS - 1).join("")}…`;
}

function keyOf({ predicate, args, negated, scope = null }: Fact): string {
  return JSON.stringify([predicate, args, negated, scope]);
}

import { expect, test } from "vitest";

import { buckets, parseMetrics, quantile, rate, total } from "./prometheus";

const TEXT = `# HELP svc_http_requests_total Requests answered, by route template
# TYPE svc_http_requests_total counter
svc_http_requests_total{method="GET",route="/a{b}",status="200"} 3.0
svc_http_requests_total{method="POST",route="/ask",status="200"} 4
svc_memory_facts_total 22.0 1700000000000

odd{text="a \\"quoted\\" \\\\ back\\nslash, comma"} NaN
h_bucket{kind="ask",le="0.1"} 1
h_bucket{kind="ask",le="+Inf"} 3
h_bucket{kind="prove",le="0.1"} 1
h_bucket{kind="prove",le="+Inf"} 1
not a sample
`;

test("samples with labels, timestamps and escapes", () => {
  const samples = parseMetrics(TEXT);
  expect(samples).toHaveLength(8);
  expect(samples[0]).toEqual({ name: "svc_http_requests_total", labels: { method: "GET", route: "/a{b}", status: "200" }, value: 3 });
  expect(samples[2]).toEqual({ name: "svc_memory_facts_total", labels: {}, value: 22 });
  expect(samples[3]?.labels["text"]).toBe('a "quoted" \\ back\nslash, comma');
  expect(samples[3]?.value).toBeNaN();
});

test("totals over labels", () => {
  const samples = parseMetrics(TEXT);
  expect(total(samples, "svc_http_requests_total")).toBe(7);
  expect(total(samples, "svc_http_requests")).toBeNull();
});

test("buckets over labels, in order", () => {
  expect([...buckets(parseMetrics(TEXT), "h")]).toEqual([[0.1, 2], [Infinity, 4]]);
});

test("a quantile of the observations between two readings", () => {
  const before = new Map([[1, 10], [2, 10], [Infinity, 10]]);
  expect(quantile(0.5, before, before)).toBeNull();
  expect(quantile(0.5, before, new Map([[1, 10], [2, 20], [Infinity, 20]]))).toBe(1.5);
  expect(quantile(0.5, before, new Map([[1, 14], [2, 14], [Infinity, 14]]))).toBe(0.5);
  expect(quantile(0.99, before, new Map([[1, 10], [2, 10], [Infinity, 11]]))).toBe(2);
  expect(quantile(0.99, before, new Map([[1, 1], [2, 1], [Infinity, 1]]))).toBeNull();
});

test("the rate of a counter", () => {
  expect(rate(5, 15, 5)).toBe(2);
  expect(rate(15, 5, 5)).toBeNull();
  expect(rate(null, 5, 5)).toBeNull();
  expect(rate(1, 5, 0)).toBeNull();
});

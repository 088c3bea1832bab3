/** The styles of report.html: the colours of the dashboard, for light and for dark. */

export const PAGE_STYLE = `
:root {
  color-scheme: light dark;
  --page: #f7f8fa; --panel: #ffffff; --line: #d5d9e0; --ink: #16191f; --muted: #59616e;
  --held: #177245; --held-soft: #cfeedd; --shared: #3451d1; --shared-soft: #dbe3fc;
  --wait: #935200; --wait-soft: #f6dfb6; --lost: #b42318; --lost-soft: #fbd5d1; --band: #fdf1dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #111317; --panel: #181b20; --line: #343a44; --ink: #e7eaef; --muted: #9aa3b0;
    --held: #56c98a; --held-soft: #1d4a33; --shared: #8ea8ff; --shared-soft: #2a3768;
    --wait: #f0b04a; --wait-soft: #5c4215; --lost: #ff8579; --lost-soft: #6b2a26; --band: #2d2415;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 90rem; padding: 0 1rem 3rem; background: var(--page); color: var(--ink);
  font: 0.875rem/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
h1 { font-size: 1.25rem; }
h2 { font-size: 1.0625rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 0.9375rem; margin: 0 0 0.25rem; }
p, ul, dl { margin: 0.5rem 0; }
.sentence { font-size: 1rem; font-weight: 600; }
.muted, figcaption, caption { color: var(--muted); }
.verdict { padding: 0.125rem 0.5rem; border: 2px solid; border-radius: 0.25rem; }
.verdict.ok { color: var(--held); }
.verdict.violated, .message, tr.concerned th { color: var(--lost); }
.verdict.unknown { color: var(--wait); }
pre { margin: 0; padding: 0.75rem; background: var(--panel); border: 1px solid var(--line); border-radius: 0.375rem; white-space: pre-wrap; }
code { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
dl { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; }
dt { color: var(--muted); font-size: 0.75rem; }
dd { margin: 0; }
section.violation { margin: 1rem 0; padding: 0.75rem; background: var(--panel); border: 1px solid var(--line); border-left: 0.25rem solid var(--lost); }
.message { font-weight: 600; }
.scroll { overflow-x: auto; margin: 0.5rem 0; }
.scroll:focus-visible, summary:focus-visible, pre:focus-visible { outline: 2px solid var(--shared); outline-offset: 2px; }
table { border-collapse: collapse; font-size: 0.8125rem; }
caption { text-align: left; padding: 0.25rem 0; }
th, td { padding: 0.25rem 0.75rem 0.25rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; overflow-wrap: break-word; }
tbody th { font-weight: 500; min-width: 4rem; }
td { min-width: 3.5rem; max-width: 36rem; }
tr.concerned { background: color-mix(in srgb, var(--lost-soft) 35%, transparent); }
figure { margin: 0.75rem 0 1.25rem; }
.plot { display: grid; grid-template-columns: 5.5rem 1fr; background: var(--panel); border: 1px solid var(--line); }
.plot.wide { min-width: 60rem; }
.lanes { grid-row: span 2; position: sticky; left: 0; z-index: 1; margin: 0; padding: 0; list-style: none; background: var(--panel); border-right: 1px solid var(--line); font-size: 0.6875rem; line-height: 1rem; }
.lanes li { padding-left: 0.375rem; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; }
.lanes .head { font-weight: 700; }
.axis { display: flex; justify-content: space-between; padding: 0.125rem 0.25rem; border-top: 1px solid var(--line); color: var(--muted); font-size: 0.6875rem; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: 0.75rem; padding-top: 0.25rem; }
figcaption i { display: inline-block; width: 1.25rem; height: 0.625rem; margin-right: 0.25rem; border: 1px solid; }
svg { display: block; }
svg svg { display: inline; }
text { font-size: 10px; fill: var(--ink); }
rect, path { vector-effect: non-scaling-stroke; }
.band { fill: var(--band); opacity: 0.7; }
.struck { fill: var(--wait-soft); opacity: 0.6; }
.fault { fill: var(--wait-soft); stroke: var(--wait); }
.key-fault { background: var(--wait-soft); color: var(--wait); }
.wait { fill: var(--muted); opacity: 0.7; }
figcaption .key-wait { background: var(--muted); color: var(--muted); height: 3px; margin-bottom: 0.1875rem; }
.held { fill: var(--held-soft); stroke: var(--held); }
path.held { fill: var(--held); stroke: none; }
.key-held { background: var(--held-soft); color: var(--held); }
.shared { fill: var(--shared-soft); stroke: var(--shared); }
.key-shared { background: var(--shared-soft); color: var(--shared); }
.after { fill: none; stroke: var(--muted); stroke-dasharray: 3 2; }
figcaption .key-after { border-style: dashed; color: var(--muted); }
.concerned rect.held, .concerned rect.shared { fill: var(--lost-soft); stroke: var(--lost); stroke-width: 2; }
.concerned text { fill: var(--ink); font-weight: 700; }
path.violation { fill: var(--lost); }
.mark { stroke: var(--lost); stroke-width: 1.5; stroke-dasharray: 5 3; }
.key-violation { background: var(--lost-soft); color: var(--lost); }
@media (max-width: 40rem) {
  body { padding: 0 0.5rem 2rem; }
  .plot { grid-template-columns: 4.25rem 1fr; }
  th, td { padding-right: 0.5rem; overflow-wrap: anywhere; }
  .plot:not(.wide) .axis span:nth-child(even) { display: none; }
}
@media print { .scroll { overflow: visible; } }
`;

/** The numbers of claims by how long something took, as bars. */

import type { TimeHistogram } from "../../gateway/dashboard/view-types.ts";
import { formatCount, formatExact } from "../model/time-format.ts";

interface HistogramProps {
  readonly title: string;
  readonly caption: string;
  /** null: there were none. */
  readonly histogram: TimeHistogram | null;
  readonly emptyText: string;
}

export function Histogram({ title, caption, histogram, emptyText }: HistogramProps) {
  const total = histogram === null ? 0 : histogram.counts.reduce((sum, count) => sum + count, 0);
  return (
    <section class="histogram">
      <h2>{title}</h2>
      {histogram === null || total === 0 ? (
        <p class="muted">{emptyText}</p>
      ) : (
        <table>
          <caption class="visually-hidden">{title}</caption>
          <thead class="visually-hidden">
            <tr>
              <th scope="col">Time</th>
              <th scope="col">Claims</th>
            </tr>
          </thead>
          <tbody>
            {histogram.counts.map((count, index) => (
              <tr key={nameBucket(histogram, index)}>
                <th scope="row">{nameBucket(histogram, index)}</th>
                <td>
                  {count > 0 && <span class="bar" style={{ width: `${barPart(count, histogram) * 70}%` }} />}
                  <span class="bar-count">{formatCount(count)}</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="caption">{total === 0 ? caption : `${formatCount(total)} claims, ${caption}`}</p>
    </section>
  );
}

function barPart(count: number, { counts }: TimeHistogram): number {
  return count / Math.max(...counts, 1);
}

function nameBucket({ boundsMs }: TimeHistogram, index: number): string {
  const bound = boundsMs[index];
  return bound === undefined ? `over ${formatExact(boundsMs.at(-1) ?? 0)}` : `to ${formatExact(bound)}`;
}

/** What `holdfast doctor` says of the store. */

import type { Check } from "../../spi/driver.ts";
import { FullText } from "./safe-text.tsx";
import { StateMark } from "./state-mark.tsx";

const MARKS = {
  ok: { tone: "ok", word: "ok" },
  warn: { tone: "waiting", word: "warning" },
  fail: { tone: "lost", word: "fails" },
  unknown: { tone: "unknown", word: "unknown" },
} as const;

/** @param checks null: only `holdfast doctor` itself can say it */
export function Checks({ checks }: { readonly checks: readonly Check[] | null }) {
  return (
    <section class="panel">
      <h2>Checks</h2>
      {checks === null ? (
        <p class="muted">
          This store does not tell. <code>holdfast doctor</code> can say it, with the url of the store.
        </p>
      ) : checks.length === 0 ? (
        <p class="muted">There is nothing to check.</p>
      ) : (
        <table class="checks">
          <thead class="visually-hidden">
            <tr>
              <th scope="col">Result</th>
              <th scope="col">Check</th>
              <th scope="col">Message</th>
            </tr>
          </thead>
          <tbody>
            {checks.map((check) => (
              <tr key={check.name}>
                <td>
                  <StateMark tone={MARKS[check.status].tone}>{MARKS[check.status].word}</StateMark>
                </td>
                <th scope="row">{check.name}</th>
                <td>
                  <FullText text={check.message} />
                  {check.hint !== undefined && (
                    <span class="hint">
                      <FullText text={check.hint} />
                    </span>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

/** Texts from outside (keys, errors, names of rivals) in HTML and XML. */

import { hideSecrets } from "../hide-secrets.ts";

/** Control, format, separator, unassigned and lone surrogate characters: invisible, they change the order of text, or XML forbids them. */
const UNSAFE_CHARACTERS = /[\p{Cc}\p{Cf}\p{Cs}\p{Cn}\p{Zl}\p{Zp}]/gu;
const MARKUP = /[&<>"']/g;
const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** The text as content, or as an attribute in double quotation marks; without secrets. */
export function escapeMarkup(text: string): string {
  return hideSecrets(text)
    .replace(UNSAFE_CHARACTERS, (unsafe) => `\\u{${(unsafe.codePointAt(0) as number).toString(16)}}`)
    .replace(MARKUP, (character) => ENTITIES[character] as string);
}

export interface Table {
  readonly caption: string;
  readonly head: readonly string[];
  /** Plain texts; the first cell of a row is its header. */
  readonly rows: readonly (readonly string[])[];
  /** A class of each row that has one. */
  readonly classOf?: (index: number) => string | null;
}

export function formatTable({ caption, head, rows, classOf }: Table): string {
  const headers = head.map((text) => `<th scope="col">${escapeMarkup(text)}</th>`).join("");
  const body = rows.map(([first = "", ...cells], index) => {
    const name = classOf?.(index) ?? null;
    const start = name === null ? "<tr>" : `<tr class="${name}">`;
    const rest = cells.map((text) => `<td>${escapeMarkup(text)}</td>`).join("");
    return `${start}<th scope="row">${escapeMarkup(first)}</th>${rest}</tr>`;
  });
  return `<div class="scroll" tabindex="0" role="region" aria-label="${escapeMarkup(caption)}"><table>
<caption>${escapeMarkup(caption)}</caption>
<thead><tr>${headers}</tr></thead>
<tbody>
${body.join("\n")}
</tbody></table></div>
`;
}

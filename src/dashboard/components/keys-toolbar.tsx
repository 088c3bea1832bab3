/** Search, prefix and order of the list of keys. */

import type { SortOrder } from "../../listing/key-rows.ts";
import { SORT_ORDERS } from "../../listing/key-rows.ts";
import type { KeysQuery } from "../model/routes.ts";
import { SearchField } from "./search-field.tsx";

interface KeysToolbarProps {
  readonly query: KeysQuery;
  /** Why no key can begin with the prefix; null: one can. */
  readonly prefixProblem: string | null;
  readonly onChange: (query: KeysQuery) => void;
}

const ORDER_TITLES: Readonly<Record<SortOrder, string>> = {
  waiters: "Waiters",
  longestWait: "Longest wait",
  held: "Held for",
  key: "Key",
};

/** Each prefix is a search in the store: one for a word, not for each of its letters. */
const PREFIX_DELAY_MS = 600;

export function KeysToolbar({ query, prefixProblem, onChange }: KeysToolbarProps) {
  return (
    <search class="toolbar">
      <SearchField
        label="Search the loaded rows by key or holder"
        placeholder="Search keys and holders"
        value={query.search}
        hasShortcut
        onChange={(search) => onChange({ ...query, search })}
      />
      <SearchField
        label="Load only keys that begin with this prefix"
        placeholder="Key prefix, such as invoice:"
        value={query.prefix}
        delayMs={PREFIX_DELAY_MS}
        problem={prefixProblem}
        onChange={(prefix) => onChange({ ...query, prefix })}
      />
      <div class="narrow-sort">
        <label class="select">
          <span>Sort by</span>
          <select
            value={query.sort}
            onChange={(event) =>
              onChange({ ...query, sort: event.currentTarget.value as SortOrder, isReversed: false })
            }
          >
            {SORT_ORDERS.map((order) => (
              <option key={order} value={order}>
                {ORDER_TITLES[order]}
              </option>
            ))}
          </select>
        </label>
        <button
          type="button"
          class="button"
          aria-pressed={query.isReversed}
          onClick={() => onChange({ ...query, isReversed: !query.isReversed })}
        >
          Reverse
        </button>
      </div>
    </search>
  );
}

/** The title of a column that sorts the rows. */

import type { SortOrder } from "../../listing/key-rows.ts";
import type { KeysQuery } from "../model/routes.ts";

interface SortTitleProps {
  readonly order: SortOrder;
  readonly title: string;
  readonly query: KeysQuery;
  readonly onChange: (query: KeysQuery) => void;
}

export function SortTitle({ order, title, query, onChange }: SortTitleProps) {
  const direction = directionOf(order, query);
  const change = (): void => onChange({ ...query, sort: order, isReversed: order === query.sort && !query.isReversed });
  return (
    <button type="button" class="sort" onClick={change}>
      {title}
      <span class="sort-arrow" data-direction={direction} />
    </button>
  );
}

/** Keys are in ascending order, figures in descending order, if it is not reversed. */
export function directionOf(order: SortOrder, { sort, isReversed }: KeysQuery): "ascending" | "descending" | "none" {
  if (order !== sort) return "none";
  return (order === "key") === isReversed ? "descending" : "ascending";
}

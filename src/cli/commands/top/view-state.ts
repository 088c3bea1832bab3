/** How `holdfast top` shows its rows, and how each key changes that. */

import type { SortOrder } from "../../../listing/key-rows.ts";
import { SORT_ORDERS } from "../../../listing/key-rows.ts";
import type { Key } from "./keys.ts";

/** What the user has chosen. */
export interface ViewState {
  readonly order: SortOrder;
  readonly isReversed: boolean;
  /** Shown are the rows with this text; "": all. */
  readonly filter: string;
  /** Characters are added to the filter. */
  readonly isEditingFilter: boolean;
  /** The number of rows above the first one on the screen. */
  readonly offset: number;
  readonly isPaused: boolean;
  readonly isHelpShown: boolean;
}

export const INITIAL_VIEW: ViewState = {
  order: "waiters",
  isReversed: false,
  filter: "",
  isEditingFilter: false,
  offset: 0,
  isPaused: false,
  isHelpShown: false,
};

/** What limits the offset. */
export interface Extent {
  /** The rows that the filter leaves. */
  readonly rowCount: number;
  /** How many rows the screen shows at a time. */
  readonly pageRows: number;
}

/** A longer filter would be of no use: no key is longer. */
const MAX_FILTER_LENGTH = 512;

/** The view after a key. Keys without a meaning change nothing. */
export function applyKey(view: ViewState, key: Key, extent: Extent): ViewState {
  if (view.isHelpShown) return { ...view, isHelpShown: false };
  const distance = scrollDistance(key, view.isEditingFilter, extent);
  if (distance !== null) return clampOffset({ ...view, offset: clampOffset(view, extent).offset + distance }, extent);
  return view.isEditingFilter ? editFilter(view, key) : applyCommand(view, key);
}

/** The view with an offset that leaves no part of the screen empty, as long as there are enough rows. */
export function clampOffset(view: ViewState, { rowCount, pageRows }: Extent): ViewState {
  const offset = Math.max(0, Math.min(view.offset, rowCount - pageRows));
  return offset === view.offset ? view : { ...view, offset };
}

/** null: the key does not scroll. */
function scrollDistance({ name, text }: Key, isText: boolean, { rowCount, pageRows }: Extent): number | null {
  switch (name) {
    case "up":
      return -1;
    case "down":
      return 1;
    case "pageUp":
      return -pageRows;
    case "pageDown":
      return pageRows;
    case "home":
      return -rowCount;
    case "end":
      return rowCount;
    default:
      if (isText) return null;
      return text === "j" ? 1 : text === "k" ? -1 : null;
  }
}

function editFilter(view: ViewState, { name, text }: Key): ViewState {
  const { filter } = view;
  switch (name) {
    case "character":
      return filter.length < MAX_FILTER_LENGTH ? { ...view, filter: filter + text, offset: 0 } : view;
    case "backspace":
      return { ...view, filter: Array.from(filter).slice(0, -1).join(""), offset: 0 };
    case "clearLine":
      return { ...view, filter: "", offset: 0 };
    case "enter":
      return { ...view, isEditingFilter: false };
    case "escape":
      return { ...view, isEditingFilter: false, filter: "", offset: 0 };
    default:
      return view;
  }
}

function applyCommand(view: ViewState, { name, text }: Key): ViewState {
  if (name === "escape") return { ...view, filter: "", offset: 0 };
  switch (text) {
    case "s": {
      const next = (SORT_ORDERS.indexOf(view.order) + 1) % SORT_ORDERS.length;
      return { ...view, order: SORT_ORDERS[next] as SortOrder, isReversed: false, offset: 0 };
    }
    case "r":
      return { ...view, isReversed: !view.isReversed, offset: 0 };
    case "/":
      return { ...view, isEditingFilter: true };
    case " ":
      return { ...view, isPaused: !view.isPaused };
    case "?":
      return { ...view, isHelpShown: true };
    default:
      return view;
  }
}

/** The columns of the list of events. */

import type { DashboardEvent } from "../../gateway/dashboard/view-types.ts";
import { describeKind, toneOf } from "../model/event-filter.ts";
import { formatMoment } from "../model/time-format.ts";
import { makeVisible } from "../model/visible-text.ts";
import { Link } from "./link.tsx";
import type { Column } from "./row-table.tsx";
import { Label, ShortText } from "./safe-text.tsx";
import { StateMark } from "./state-mark.tsx";

/** @param now in milliseconds since 1970: events of another day show it */
export function createEventColumns(now: number): readonly Column<DashboardEvent>[] {
  return [
    {
      name: "at",
      title: "At",
      cell: ({ at }) => <time dateTime={new Date(at).toISOString()}>{formatMoment(at, now)}</time>,
    },
    {
      name: "kind",
      title: "Kind",
      cell: ({ kind }) => <StateMark tone={toneOf(kind)}>{describeKind(kind)}</StateMark>,
    },
    { name: "key", title: "Key", cell: (event) => <EventKeys event={event} /> },
    { name: "label", title: "Label", cell: ({ label }) => <Label text={label} /> },
    {
      name: "more",
      title: "Details",
      cell: (event) => <Details event={event} />,
    },
  ];
}

function EventKeys({ event: { keys } }: { readonly event: DashboardEvent }) {
  const [first] = keys;
  if (first === undefined) return <span class="muted">keys that you may not see</span>;
  return (
    <Link to={{ view: "key", key: first }} class="row-link">
      <ShortText text={first} isCode />
      {keys.length > 1 && (
        <span class="count-badge" title={keys.map(makeVisible).join("\n")}>{`and ${keys.length - 1} more`}</span>
      )}
    </Link>
  );
}

const SAMPLED: DashboardEvent["source"] = "sampled";

function Details({ event }: { readonly event: DashboardEvent }) {
  const { operator, reason, account, token, source } = event;
  const text = [
    ...(operator === undefined || operator === "" ? [] : [`by ${operator}`]),
    ...(reason === undefined || reason === "" ? [] : [reason]),
    ...(account === "" ? [] : [`account ${account}`]),
  ].join(", ");
  return (
    <span class="details">
      {source === SAMPLED && (
        <span class="count-badge" title="Seen as a difference of two lists, so its time is not exact.">
          sampled
        </span>
      )}
      {text !== "" && <ShortText text={text} />}
      {text === "" && token !== null && <span class="code muted">{token}</span>}
    </span>
  );
}

/** The columns of the list of holders. A line is the head of a label or one of its locks. */

import type { HolderGroup, HolderLine } from "../model/holder-groups.ts";
import { timeInState } from "../model/key-queue.ts";
import type { LeaseScale } from "../model/lease-scale.ts";
import { formatAge, formatCount } from "../model/time-format.ts";
import { LeaseBar } from "./lease-bar.tsx";
import { Link } from "./link.tsx";
import type { Column } from "./row-table.tsx";
import { Label, ShortText } from "./safe-text.tsx";
import { StateMark } from "./state-mark.tsx";

export function createHolderColumns(leases: LeaseScale, elapsedMs: number): readonly Column<HolderLine>[] {
  return [
    { name: "name", title: "Label, and its keys", cell: (line) => <Name line={line} /> },
    {
      name: "state",
      title: "State",
      cell: (line) =>
        line.kind === "group" ? (
          <Counts group={line.group} />
        ) : line.held.claim.state === "held" ? (
          <StateMark tone="held">holds</StateMark>
        ) : (
          <StateMark tone="waiting">waits</StateMark>
        ),
    },
    {
      name: "since",
      title: "For",
      cell: (line) => (line.kind === "group" ? "" : formatAge(timeInState(line.held.claim) + elapsedMs)),
    },
    {
      name: "lease",
      title: "Lease left",
      cell: (line) => {
        if (line.kind === "group") return "";
        const { tag, remainingMs } = line.held.claim;
        const lengthMs = leases.lengthOf([tag], remainingMs ?? 0);
        return <LeaseBar remainingMs={remainingMs} elapsedMs={elapsedMs} lengthMs={lengthMs} />;
      },
    },
    {
      name: "tag",
      title: "Tag",
      cell: (line) => (line.kind === "group" ? "" : <span class="code muted">{line.held.claim.tag}</span>),
    },
  ];
}

function Name({ line }: { readonly line: HolderLine }) {
  if (line.kind === "group") {
    const { label } = line.group;
    return (
      <Link to={{ view: "holders", search: label }} class="row-link group-label">
        <Label text={label} />
      </Link>
    );
  }
  const { key } = line.held.lock;
  return (
    <Link to={{ view: "key", key }} class="row-link">
      <ShortText text={key} isCode />
    </Link>
  );
}

function Counts({ group: { held, waiting } }: { readonly group: HolderGroup }) {
  return (
    <span class="muted">
      {[
        ...(held.length > 0 ? [`holds ${formatCount(held.length)}`] : []),
        ...(waiting.length > 0 ? [`waits for ${formatCount(waiting.length)}`] : []),
      ].join(", ")}
    </span>
  );
}

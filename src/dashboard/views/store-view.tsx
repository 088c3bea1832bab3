/** The store: what `holdfast doctor` says, its traits, versions. */

import type { Overview, StoreReport } from "../../gateway/dashboard/view-types.ts";
import { Banner } from "../components/banner.tsx";
import { Checks } from "../components/checks.tsx";
import { EmptyState, LoadingRows } from "../components/empty-state.tsx";
import { FullText } from "../components/safe-text.tsx";
import { usePolled } from "../data/use-polled.ts";
import { describeTraits } from "../model/store-text.ts";
import { formatMoment } from "../model/time-format.ts";

const INTERVAL_MS = 10_000;

export function StoreView({ overview }: { readonly overview: Overview | null }) {
  const { value: report, failure } = usePolled<StoreReport>("/store", INTERVAL_MS);
  return (
    <>
      <h1 class="visually-hidden">Store</h1>
      <div class="banners" aria-live="polite">
        {failure !== null && failure.kind !== "forbidden" && (
          <Banner tone={failure.kind === "unreachable" ? "bad" : "warn"} title="The report cannot be read:">
            {failure.message}
          </Banner>
        )}
      </div>
      {failure?.kind === "forbidden" ? (
        <EmptyState title="The store may not be inspected" tone="refused">
          {failure.message}
        </EmptyState>
      ) : report === null ? (
        failure?.kind !== "unreachable" && <LoadingRows label="Loading the report" />
      ) : (
        <div class="store">
          <Checks checks={report.checks} />
          <Traits report={report} />
          <Facts report={report} overview={overview} />
        </div>
      )}
    </>
  );
}

function Traits({ report: { traits } }: { readonly report: StoreReport }) {
  return (
    <section class="panel">
      <h2>Traits</h2>
      <dl class="facts">
        {describeTraits(traits).map(({ name, value, meaning }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <span class="trait">{value}</span> <span class="muted">{meaning}</span>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

interface FactsProps {
  readonly report: StoreReport;
  readonly overview: Overview | null;
}

function Facts({ report, overview }: FactsProps) {
  const own =
    overview === null
      ? []
      : [
          { name: "store", value: overview.store },
          { name: "gateway", value: overview.version },
          { name: "gateway since", value: formatMoment(overview.startedAt, Date.now()) },
          ...(overview.account === "" ? [] : [{ name: "account", value: overview.account }]),
        ];
  const facts = [...own, ...report.facts.filter(({ name }) => own.every((fact) => fact.name !== name))];
  return (
    <section class="panel">
      <h2>Versions</h2>
      <dl class="facts">
        {facts.map(({ name, value }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <FullText text={value} isCode />
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

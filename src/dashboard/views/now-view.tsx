/** Rates, waits and how long locks are held. */

import type { History, Sample } from "../../gateway/dashboard/view-types.ts";
import { Announcement, Banner } from "../components/banner.tsx";
import { Chart } from "../components/chart.tsx";
import { EmptyState, LoadingRows } from "../components/empty-state.tsx";
import { Figure } from "../components/figure.tsx";
import { Histogram } from "../components/histogram.tsx";
import { useTick } from "../data/clock.ts";
import { usePolled } from "../data/use-polled.ts";
import { formatAge, formatCount, formatMoment, formatRate } from "../model/time-format.ts";

const INTERVAL_MS = 2_000;
const LATE_MS = 6_000;
/** A line needs two points. */
const MIN_SAMPLES = 2;

export function NowView() {
  const { value: history, readAt, failure } = usePolled<History>("/history", INTERVAL_MS);
  const now = useTick();
  const ageMs = readAt === null ? 0 : Math.max(0, now - readAt);
  return (
    <>
      <h1 class="visually-hidden">Now</h1>
      <div class="banners">
        <Announcement text={failure?.kind === "unreachable" ? "Disconnected from the gateway." : ""} />
        {failure?.kind === "unreachable" && (
          <Banner tone="bad" title={history === null ? "Disconnected:" : `Disconnected, ${formatAge(ageMs)} old:`}>
            {failure.message}
          </Banner>
        )}
        {failure?.kind === "refused" && (
          <Banner tone="warn" title="The gateway:">
            {failure.message}
          </Banner>
        )}
      </div>
      {failure?.kind === "forbidden" ? (
        <EmptyState title="The figures cannot be shown" tone="refused">
          {failure.message}
        </EmptyState>
      ) : history === null ? (
        failure?.kind !== "unreachable" && <LoadingRows label="Loading the figures" />
      ) : (
        <div class={ageMs > LATE_MS ? "dimmed" : undefined}>
          <Figures sample={history.samples.at(-1) ?? null} />
          <Charts history={history} />
          <Histograms history={history} />
        </div>
      )}
    </>
  );
}

function Figures({ sample }: { readonly sample: Sample | null }) {
  return (
    <dl class="tiles">
      <Figure title="Held" value={formatKnown(sample, sample?.held, formatCount)} />
      <Figure title="Waiting" value={formatKnown(sample, sample?.waiting, formatCount)} />
      <Figure title="Longest wait" value={formatKnown(sample, sample?.longestWaitMs, formatAge)} />
      <Figure title="Grants per second" value={formatKnown(sample, sample?.grantsPerSecond, formatRate)} />
    </dl>
  );
}

function formatKnown(
  sample: Sample | null,
  value: number | null | undefined,
  format: (value: number) => string,
): string {
  if (sample === null || sample.held === null) return "not known";
  return value == null ? "none" : format(value);
}

/** Where the figures come from. The time between two samples is that between two lists. */
function describeSource({ origin, samples }: History): string {
  if (origin === "server") return "from the lock server";
  const [before, last] = [samples.at(-2), samples.at(-1)];
  const interval = before === undefined || last === undefined ? null : last.at - before.at;
  return interval === null
    ? "of claims through this gateway; others are sampled"
    : `of claims through this gateway; others are sampled every ${formatAge(Math.round(interval / 1_000) * 1_000)}`;
}

function Charts({ history }: { readonly history: History }) {
  const { samples, since } = history;
  const caption = `Since ${formatMoment(since, Date.now())}, in the gateway's memory; ${describeSource(history)}.`;
  if (samples.length < MIN_SAMPLES) {
    return (
      <EmptyState title="No history yet">
        The charts begin when the gateway has read the store twice. {caption}
      </EmptyState>
    );
  }
  const times = samples.map(({ at }) => at / 1_000);
  const rate = (value: number): string => formatRate(value);
  return (
    <>
      <div class="charts">
        <Chart
          title="Claims"
          times={times}
          format={formatCount}
          lines={[
            { label: "held", color: "--held", values: samples.map(({ held }) => held) },
            { label: "waiting", color: "--waiting", isDashed: true, values: samples.map(({ waiting }) => waiting) },
          ]}
        />
        <Chart
          title="Longest wait"
          times={times}
          format={formatAge}
          lines={[{ label: "longest", color: "--waiting", values: samples.map((sample) => sample.longestWaitMs) }]}
        />
        <Chart
          title="Per second"
          times={times}
          format={rate}
          lines={[
            { label: "grants", color: "--accent", values: samples.map((sample) => sample.grantsPerSecond) },
            { label: "ends", color: "--muted", isDashed: true, values: samples.map((sample) => sample.endsPerSecond) },
          ]}
        />
      </div>
      <p class="caption">{caption}</p>
    </>
  );
}

function Histograms({ history }: { readonly history: History }) {
  const { waits, holds, origin } = history;
  const source = origin === "server" ? "from the lock server" : "of claims through this gateway";
  const caption = `${source}, since the gateway's start.`;
  const none =
    origin === "server"
      ? "No claim has ended its wait since the gateway's start."
      : "This store does not tell: no claim has gone through this gateway.";
  return (
    <div class="histograms">
      <Histogram title="How long claims waited" caption={caption} histogram={waits} emptyText={none} />
      <Histogram title="How long locks were held" caption={caption} histogram={holds} emptyText={none} />
    </div>
  );
}

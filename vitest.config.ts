import { defineConfig } from "vitest/config";
import { LongFilesFirst } from "./scripts/test/long-files-first.ts";
import { isVitestSuite, SUITES, TEST_TIMEOUT_MS, toGlobs } from "./scripts/test/suites.ts";
import { SummaryReporter } from "./scripts/test/summary-reporter.ts";
import { textModules } from "./scripts/text-modules.ts";

/** What decides on the server who holds a lock, what a restart knows of it, and what a client may send. */
const SERVER_FILES = [
  "connection/connection",
  "connection/decode-request",
  "connection/request-handler",
  "local/claim-quotas",
  "local/recovery-window",
  "session/session-registry",
  "storage/durable-log",
  "storage/journal",
  "storage/write-ahead",
];

export default defineConfig({
  plugins: [textModules],
  test: {
    // more than the two cores of the smallest machine: most of their time tests wait, for leases, servers and processes
    maxWorkers: 3,
    sequence: { sequencer: LongFilesFirst },
    testTimeout: TEST_TIMEOUT_MS,
    setupFiles: ["test/support/setup/table-inspection.ts"],
    reporters: ["default", new SummaryReporter()],
    projects: SUITES.filter(isVitestSuite).map((suite) => ({
      extends: true,
      test: {
        name: suite.name,
        include: toGlobs(suite.tests),
        exclude: toGlobs(suite.excludes ?? []),
        ...(suite.requires !== undefined && { globalSetup: ["test/support/setup/requirements.ts"] }),
        ...(suite.store === "redis" && { setupFiles: ["test/support/setup/redis-script-errors.ts"] }),
        ...(suite.isTypesOnly === true && {
          include: [],
          typecheck: {
            enabled: true,
            only: true,
            ignoreSourceErrors: true,
            include: suite.tests.map((folder) => `${folder}**/*.test-d.ts`),
          },
        }),
      },
    })),
    coverage: {
      provider: "v8",
      include: ["src/**/*.ts"],
      reporter: ["text-summary"],
      thresholds: {
        // These decide who holds a lock: no decision in them goes untested.
        "src/{claim,lock-table}/**": { branches: 100 },
        "src/util/{backoff,checksum,chunk,deadline-heap,linked-list,slot-map}.ts": { branches: 100 },
        "src/client/{grant,lock-spec}.ts": { branches: 100 },
        ...Object.fromEntries(SERVER_FILES.map((file) => [`src/server/${file}.ts`, { branches: 90 }])),
      },
    },
  },
});

import { defineConfig } from "vitest/config";
import { isVitestSuite, SUITES, toGlobs } from "./scripts/test/suites.ts";
import { SummaryReporter } from "./scripts/test/summary-reporter.ts";

export default defineConfig({
  test: {
    maxWorkers: 2,
    // a busy machine makes a few seconds many
    testTimeout: process.env.HOLDFAST_LONG === "1" ? 180_000 : 20_000,
    setupFiles: ["test/support/setup/table-inspection.ts"],
    reporters: ["default", new SummaryReporter()],
    projects: SUITES.filter(isVitestSuite).map((part) => ({
      extends: true,
      test: {
        name: part.name,
        include: toGlobs(part.tests),
        exclude: toGlobs(part.excludes ?? []),
        fileParallelism: part.isSequential !== true,
        ...(part.store === "redis" && { setupFiles: ["test/support/setup/redis-script-errors.ts"] }),
        ...(part.isTypesOnly === true && {
          include: [],
          typecheck: {
            enabled: true,
            only: true,
            ignoreSourceErrors: true,
            include: part.tests.map((folder) => `${folder}**/*.test-d.ts`),
          },
        }),
      },
    })),
    coverage: {
      provider: "v8",
      include: ["src/core/**"],
      reporter: ["text"],
      // Core decides who holds a lock: no decision in it goes untested.
      thresholds: { branches: 100 },
    },
  },
});

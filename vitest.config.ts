import { defineConfig } from "vitest/config";
import { ClosingLineReporter } from "./scripts/test/closing-line-reporter.ts";
import { globs, isVitest, PARTS } from "./scripts/test/parts.ts";

export default defineConfig({
  test: {
    maxWorkers: 2,
    // a busy machine makes a few seconds many
    testTimeout: process.env.HOLDFAST_LONG === "1" ? 180_000 : 20_000,
    setupFiles: ["test/support/inspected-tables.ts"],
    reporters: ["default", new ClosingLineReporter()],
    projects: PARTS.filter(isVitest).map((part) => ({
      extends: true,
      test: {
        name: part.name,
        include: globs(part.tests),
        exclude: globs(part.except ?? []),
        fileParallelism: part.oneAtATime !== true,
        ...(part.store === "redis" && { setupFiles: ["test/support/watch-redis.ts"] }),
        ...(part.typesOnly === true && {
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

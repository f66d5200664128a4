// SPDX-License-Identifier: Apache-2.0

/* A request that comes with a traceparent, and work within it: trace URL TRACEPARENT. */
#include <stdio.h>
#include <stdlib.h>
#include <tidegate.h>

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s: %s\n", tg_status_name(status), tg_error_text());
    exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  tg_tracer *tracer;
  check(tg_tracer_new(
      TG_TRACER(.endpoint = argv[1], .resource = (const tg_label[]){{"service.name", "worker"}}, .resource_count = 1),
      &tracer));

  tg_trace_context caller, here;
  check(tg_trace_context_parse(argv[2], NULL, &caller)); /* TG_NONE would say: begin a trace of your own */
  tg_span *request, *work;
  check(tg_span_start(tracer, "request", &caller, &request));
  check(tg_span_set(request, "model", "llama"));
  check(tg_span_context(request, &here));

  check(tg_span_start(tracer, "decode", &here, &work));
  check(tg_span_fail(work, "out of memory"));
  tg_span_release(work);

  char traceparent[TG_TRACEPARENT_SIZE]; /* for requests to elsewhere */
  check(tg_trace_context_format(&here, traceparent, sizeof traceparent));
  puts(traceparent);

  tg_span_release(request);
  check(tg_tracer_shutdown(tracer, 5000000000));
  tg_tracer_release(tracer);
  return 0;
}

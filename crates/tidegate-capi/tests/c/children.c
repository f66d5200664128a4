// SPDX-License-Identifier: Apache-2.0

/* What a forked child can do with what it inherited: children DIRECTORY. */
#define _DEFAULT_SOURCE
#include "heard.h"

#include <sys/wait.h>

/* A child releases what it inherited, and works with what it makes. */
static void a_child_is_free(const char *directory) {
  tg_registry *registry, *shared;
  tg_server *server;
  tg_tracer *tracer;
  tg_gauge *gauge;
  tg_composite *composite, *watched;
  struct heard heard = {0};
  OK(tg_registry_prometheus(0, &registry));
  OK(tg_registry_shm(directory, TG_NOTHING, &shared));
  OK(tg_serve_http(registry, "127.0.0.1:0", &server));
  OK(tg_tracer_new(TG_TRACER(.endpoint = "http://127.0.0.1:1"), &tracer));
  OK(tg_gauge_new(shared, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &gauge));
  OK(tg_on_change(TG_ANY(gauge), NULL, hear, &heard, end, &heard.subscription));
  OK(tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), NULL, &watched));
  OK(tg_gauge_set(gauge, 1));
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    OK(tg_subscription_release(heard.subscription));
    OK(tg_composite_release(watched));
    OK(tg_server_release(server));
    OK(tg_tracer_release(tracer));
    OK(tg_gauge_set(gauge, 2));
    OK(tg_gauge_release(gauge));
    OK(tg_gauge_new(shared, TG_DESCRIPTION(.name = "own"), TG_NOTHING, &gauge));
    OK(tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), NULL, &composite));
    struct heard own = {0};
    OK(tg_on_change(TG_ANY(composite), TG_TRIGGER(.when = TG_ABOVE, .at = 5), hear, &own, end, &own.subscription));
    OK(tg_gauge_set(gauge, 1000));
    WAIT(own.calls > 0);
    OK(tg_serve_http(registry, "127.0.0.1:0", &server));
    OK(tg_server_release(server));
    OK(tg_subscription_release(own.subscription));
    OK(tg_composite_release(composite));
    OK(tg_gauge_release(gauge));
    OK(tg_registry_release(registry));
    OK(tg_registry_release(shared));
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  WAIT((tg_gauge_add(gauge, 1), heard.calls > 0)); /* here it goes on */
  OK(tg_subscription_release(heard.subscription));
  WAIT(heard.done == 1);
  OK(tg_composite_release(watched));
  OK(tg_server_release(server));
  OK(tg_tracer_release(tracer));
  OK(tg_gauge_release(gauge));
  OK(tg_registry_release(registry));
  OK(tg_registry_fold(shared, 0));
  OK(tg_registry_release(shared));
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  a_child_is_free(argv[1]);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0

/* Serves until a stop command: each line of input is a step. */
#include "expect.h"

int main(void) {
  tg_registry *registry;
  tg_counter *counter;
  tg_server *server;
  char address[64], line[16];
  OK(tg_registry_prometheus(0, &registry));
  OK(tg_counter_new(registry, TG_DESCRIPTION(.name = "served"), TG_NOTHING, &counter));
  OK(tg_counter_add(counter, 7));
  OK(tg_serve_http(registry, "127.0.0.1:0", &server));
  OK(tg_registry_release(registry)); /* the server owns it, too */
  OK(tg_server_address(server, address, sizeof address));
  puts(address);
  fflush(stdout);
  EXPECT(fgets(line, sizeof line, stdin) != NULL);
  OK(tg_server_set_endpoint(server, "generate", false));
  puts("not ready");
  fflush(stdout);
  EXPECT(fgets(line, sizeof line, stdin) != NULL);
  OK(tg_server_stop(server));
  puts("stopped");
  fflush(stdout);
  EXPECT(fgets(line, sizeof line, stdin) != NULL);
  OK(tg_server_release(server));
  OK(tg_counter_release(counter));
  return 0;
}

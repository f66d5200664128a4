// SPDX-License-Identifier: Apache-2.0

// Sends the request of standard input to a gRPC method, several times over one channel:
//
//     grpc_push TARGET METHOD COUNT AUTHORITY
//
// AUTHORITY is sent in the place of the one that the library would choose. Prints how many calls succeeded.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string request{std::istreambuf_iterator<char>(std::cin), {}};
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, argv[4]);
  auto channel = grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments);
  grpc::GenericStub stub(channel);
  int succeeded = 0;
  for (int call = 0; call < std::atoi(argv[3]); ++call) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::CompletionQueue queue;
    grpc::Slice slice(request);
    grpc::ByteBuffer body(&slice, 1), answer;
    grpc::Status status;
    auto reader = stub.PrepareUnaryCall(&context, argv[2], body, &queue);
    reader->StartCall();
    reader->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    if (status.ok()) {
      ++succeeded;
    } else {
      std::cerr << status.error_code() << ": " << status.error_message() << "\n";
    }
  }
  std::cout << succeeded << "\n";
  return 0;
}

// The meshift command; see cli/command_line.h.
#include <ios>
#include <iostream>

#include "cli/command_line.h"
#include "cli/io.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);
  meshift::cli::Io io{std::cin, std::cout, std::cerr};
  return meshift::cli::RunMeshift({argv + 1, argv + argc}, io);
}

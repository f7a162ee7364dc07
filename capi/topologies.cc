// Implements the functions of meshift/c.h on topologies, which are texts here. A call that gets a
// text parses it again. None opens a file. Any threads may call.
#include <cstddef>
#include <string>
#include <vector>

#include "capi/call.h"
#include "mesh/topology_presets.h"
#include "meshift/topology.h"

using meshift::Topology;
using meshift::capi::Call;
using meshift::capi::Clear;
using meshift::capi::GiveText;
using meshift::capi::NotNull;

meshift_code meshift_topology_text(const char* topology, char** text, char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"topology", topology}, {"text", text}}));
    MESHIFT_ASSIGN_OR_RETURN(const Topology parsed, Topology::Parse(topology));
    return GiveText(parsed.ToString(), text);
  });
}

meshift_code meshift_topology_json(const char* topology, char** json, char** error) {
  Clear(json);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"topology", topology}, {"json", json}}));
    MESHIFT_ASSIGN_OR_RETURN(const Topology parsed, Topology::Parse(topology));
    return GiveText(parsed.ToJson(), json);
  });
}

meshift_code meshift_topology_preset(size_t index, char** name, char** error) {
  Clear(name);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"name", name}}));
    const std::vector<std::string> names = meshift::PresetNames();
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckIndex(index, names.size()));
    return GiveText(names[index], name);
  });
}

size_t meshift_topology_preset_count() { return meshift::PresetNames().size(); }

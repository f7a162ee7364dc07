// Another header with the path of an internal one: a mesh of triangles.
#ifndef YOUR_WORKSPACE_MESH_DEVICE_MESH_H_
#define YOUR_WORKSPACE_MESH_DEVICE_MESH_H_

namespace your_workspace {

struct DeviceMesh {
  int triangles = 0;
};

}  // namespace your_workspace

#endif  // YOUR_WORKSPACE_MESH_DEVICE_MESH_H_

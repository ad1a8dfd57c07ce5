metadata description = 'Database and container of sharedmem in an existing Cosmos DB account, and the right to use them.'

@description('An account of the NoSQL API.')
param accountName string

@description('As the setting cosmos_database says.')
param databaseName string = 'sharedmem'

@description('As the setting cosmos_container says.')
param containerName string = 'records'

@description('Most request units a second, scaled automatically from a tenth of it; 0 for a serverless account.')
param maxThroughput int = 0

@description('Object id of the identity that runs sharedmem; empty when it uses the account key.')
param principalId string = ''

// "Cosmos DB Built-in Data Contributor", in every account.
var dataContributor = '00000000-0000-0000-0000-000000000002'

resource account 'Microsoft.DocumentDB/databaseAccounts@2024-11-15' existing = {
  name: accountName
}

resource database 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2024-11-15' = {
  parent: account
  name: databaseName
  properties: {
    resource: {
      id: databaseName
    }
  }
}

resource container 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: containerName
  properties: {
    resource: {
      id: containerName
      // It cannot be changed later.
      partitionKey: {
        kind: 'MultiHash'
        version: 2
        paths: [
          '/namespace'
          '/scope'
          '/key'
        ]
      }
      // Documents live for ever unless they say otherwise.
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: [
          { path: '/namespace/?' }
          { path: '/scope/?' }
          { path: '/key/?' }
          { path: '/element/?' }
          { path: '/type/?' }
          { path: '/stamp/?' }
          { path: '/deleted/?' }
          { path: '/body/*' }
        ]
        excludedPaths: [
          { path: '/*' }
          { path: '/"_etag"/?' }
        ]
        compositeIndexes: [
          [
            { path: '/namespace', order: 'ascending' }
            { path: '/key', order: 'ascending' }
            { path: '/element', order: 'ascending' }
          ]
          [
            { path: '/namespace', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
          [
            { path: '/namespace', order: 'descending' }
            { path: '/type', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
        ]
      }
    }
    options: maxThroughput > 0 ? { autoscaleSettings: { maxThroughput: maxThroughput } } : {}
  }
}

resource right 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = if (!empty(principalId)) {
  parent: account
  name: guid(account.id, databaseName, principalId, dataContributor)
  properties: {
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${dataContributor}'
    principalId: principalId
    scope: '${account.id}/dbs/${databaseName}'
  }
  dependsOn: [
    database
  ]
}

output durableUrl string = replace(account.properties.documentEndpoint, 'https://', 'cosmos://')
